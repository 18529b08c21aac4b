"""Which plans a recipe asks for, and what it is told when the corpus cannot serve it."""

import pytest

from xlm.config.phases import Phase
from xlm.errors import UserError
from xlm.shards.plan_requests import PlanRequest, phase_corpora, requested_plans

DOCUMENTS = ["de", "en", "sw"]
PAIRS = ["en_de", "en_zh-Hans"]


def phase(objectives, *, languages="all", length=128, name="first"):
    return Phase.model_validate(
        {
            "name": name,
            "steps": 1,
            "sequence_length": length,
            "languages": languages,
            "sampling": {"kind": "temperature", "alpha": 0.5},
            "objectives": {objective: {"share": 1 / len(objectives)} for objective in objectives},
        }
    )


def test_each_plan_is_asked_for_once():
    phases = [phase(["mlm", "tlm"]), phase(["mlm"], name="again"), phase(["contrastive"], length=256, name="long")]
    assert requested_plans(phases, documents=DOCUMENTS, pairs=PAIRS) == sorted(
        [
            *(PlanRequest(language, "mlm", 128) for language in DOCUMENTS),
            *(PlanRequest(pair, "tlm", 128) for pair in PAIRS),
            *(PlanRequest(pair, "contrastive", 256) for pair in PAIRS),
        ]
    )


def test_a_phase_draws_on_its_own_languages_only():
    limited = phase(["mlm", "tlm"], languages=["de", "en"])
    assert phase_corpora(limited, "mlm", documents=DOCUMENTS, pairs=PAIRS) == ["de", "en"]
    assert phase_corpora(limited, "tlm", documents=DOCUMENTS, pairs=PAIRS) == ["en_de"]


def test_a_language_the_corpus_lacks_is_named_with_those_it_has():
    with pytest.raises(
        UserError, match=r"phase 'first' asks for language 'zh-Hant', which the corpus lacks.*zh-Hans.*it has: de, en, sw, zh-Hans\."
    ):
        requested_plans([phase(["mlm", "tlm"], languages=["en", "zh-Hant"])], documents=DOCUMENTS, pairs=PAIRS)
    # Swahili has documents, but a phase of pairs alone could not use them.
    with pytest.raises(UserError, match=r"'sw', which the corpus lacks.*it has: de, en, zh-Hans\."):
        requested_plans([phase(["tlm"], languages=["en", "de", "sw"])], documents=DOCUMENTS, pairs=PAIRS)


def test_an_objective_without_any_text_is_a_sentence():
    with pytest.raises(UserError, match="asks for contrastive, but the corpus has no pairs in its languages; available pairs: none"):
        requested_plans([phase(["mlm", "contrastive"])], documents=DOCUMENTS, pairs=[])
    with pytest.raises(UserError, match="no pairs in its languages; available pairs: en_de, en_zh-Hans"):
        requested_plans([phase(["tlm"], languages=["de", "zh-Hans"])], documents=DOCUMENTS, pairs=PAIRS)

"""Which plans a recipe asks for, and what it is told when the corpus cannot serve it."""

import pytest

from xlm.config.phases import Phase
from xlm.errors import UserError
from xlm.shards.plan_requests import PlanRequest, phase_corpora, requested_plans

DOCUMENTS = ["de", "en", "sw"]
PAIRS = ["en_de", "en_zh-Hans"]


def phase(objectives, *, languages="all", length=128, name="first", **options):
    return Phase.model_validate(
        {
            "name": name,
            "steps": 1,
            "sequence_length": length,
            "languages": languages,
            "sampling": {"kind": "temperature", "alpha": 0.5},
            "objectives": {objective: {"share": 1 / len(objectives), **options.get(objective, {})} for objective in objectives},
        }
    )


def test_each_plan_is_asked_for_once():
    phases = [phase(["mlm", "tlm"]), phase(["mlm"], name="again"), phase(["contrastive"], length=256, name="long")]
    assert requested_plans(phases, documents=DOCUMENTS, pairs=PAIRS) == sorted(
        [
            *(PlanRequest(language, "documents", 128) for language in DOCUMENTS),
            *(PlanRequest(pair, "pairs", 128) for pair in PAIRS),
            *(PlanRequest(pair, "separate_pairs", 256) for pair in PAIRS),
        ]
    )


def test_objectives_of_one_layout_share_its_plan():
    shared = phase(["mlm", "clm", "rtd"], rtd={"rows": "full_sentences"})
    assert {(plan.corpus, plan.layout) for plan in requested_plans([shared], documents=["de"], pairs=[])} == {
        ("de", "documents"),
        ("de", "full_sentences"),
    }
    forms = [phase(["tlm"], name=form, tlm={"form": form}) for form in ("infoxlm", "xlm", "bert")]
    assert [plan.layout for plan in requested_plans(forms, documents=[], pairs=["en_de"])] == ["pairs", "pairs_xlm"]
    of_two = requested_plans([phase(["nsp", "sop"])], documents=["de"], pairs=[])
    assert [plan.layout for plan in of_two] == ["next_sentence", "sentence_order"]


def test_an_objective_that_is_never_drawn_needs_nothing():
    unused = phase(["mlm", "tlm"], mlm={"share": 1.0}, tlm={"share": 0.0})
    assert requested_plans([unused], documents=["de"], pairs=[]) == [PlanRequest("de", "documents", 128)]
    ramp = phase(["mlm", "tlm"], mlm={"share": {"start": 1.0, "end": 0.5}}, tlm={"share": {"start": 0.0, "end": 0.5}})
    assert [plan.layout for plan in requested_plans([ramp], documents=["de"], pairs=["en_de"])] == ["documents", "pairs"]
    with pytest.raises(UserError, match=r"'sw', which the corpus lacks.*it has: de, en, zh-Hans\."):
        requested_plans(
            [phase(["tlm", "mlm"], languages=["en", "sw"], tlm={"share": 1.0}, mlm={"share": 0.0})], documents=DOCUMENTS, pairs=PAIRS
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

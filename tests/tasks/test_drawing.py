import json

import pytest

from xlm.config.recipe import IntentsSection, RetrievalSection, TasksSection
from xlm.corpora.held_out import HeldOutText
from xlm.errors import UserError
from xlm.tasks.drawing import draw_evaluation_sets, write_evaluation_sets
from xlm.tasks.evaluation_sets import (
    labelled_languages,
    load_labelled,
    load_record,
    load_retrieval,
    retrieval_languages,
    set_fingerprint,
)

SECTION = TasksSection(
    seed=5,
    languages=("en", "de", "zh-Hans"),
    intents=IntentsSection(sentences_per_template=3, shown_only_languages=("zh-Hans",)),
    retrieval=RetrievalSection(max_pool=60, pool_share=0.1, dev_pool=20),
)
SOURCES = [{"name": "home-assistant-intents", "version": "1", "licence": "Apache-2.0", "homepage": "https://example.org"}]


@pytest.fixture
def written(tmp_path, normalised, intents_wheel):
    folder = tmp_path / "tasks"
    folder.mkdir()
    sets = draw_evaluation_sets(SECTION, normalised, intents_wheel, {"zh-Hans": "zh-CN"})
    write_evaluation_sets(sets, SECTION, folder, SOURCES, "manifest-fingerprint")
    return folder


def test_what_was_written_can_be_loaded_and_is_described(written):
    record = load_record(written)
    assert labelled_languages(written, "intents") == ["de", "en", "zh-Hans"]
    assert retrieval_languages(written) == retrieval_languages(written, dev=True) == ["de", "zh-Hans"]
    assert record["seed"] == 5
    assert record["sources"] == SOURCES
    assert record["labels"] == ["AddItem", "Announce", "Open", "SetBrightness", "TurnOn"]
    for language in ("en", "de", "zh-Hans"):
        sentences = load_labelled(written, "intents", language)
        entry = record["intents"][language]
        assert entry["sentences"] == len(sentences) > 0
        assert entry["fingerprint"] == set_fingerprint(sentences)
        assert {sentence.label for sentence in sentences} <= set(record["labels"])
        assert entry["shown_only"] == (language == "zh-Hans")
    for language in ("de", "zh-Hans"):
        entry = record["retrieval"][language]
        assert entry["pool"] == len(load_retrieval(written, language)) == 60
        assert entry["dev_fingerprint"] == set_fingerprint(load_retrieval(written, language, dev=True))
    assert record["retrieval_smaller_than_max_pool"] == []


def test_every_text_of_every_set_is_held_out_and_no_other(written):
    texts = [
        sentence.text for language in labelled_languages(written, "intents") for sentence in load_labelled(written, "intents", language)
    ]
    for language in retrieval_languages(written):
        for dev in (False, True):
            for pair in load_retrieval(written, language, dev):
                texts += [pair.source, pair.target]
    held_out = HeldOutText.load(written / "held_out.npz")
    assert (held_out.matches(texts) == 1).all()
    assert (held_out.matches([text.upper() + "!" for text in texts]) == 1).all()
    assert not held_out.matches(["something else entirely", "noch ein ganz anderer Satz", "完全不同的句子"]).any()


def test_the_sets_depend_on_the_seed_alone(tmp_path, normalised, intents_wheel, written):
    again = tmp_path / "again"
    again.mkdir()
    write_evaluation_sets(draw_evaluation_sets(SECTION, normalised, intents_wheel, {}), SECTION, again, SOURCES, "manifest-fingerprint")
    files = sorted(path.relative_to(written) for path in written.rglob("*.json*"))
    assert len(files) == 8
    for file in files:
        assert (again / file).read_bytes() == (written / file).read_bytes()
    other = TasksSection(**{**SECTION.model_dump(), "seed": 6})
    assert draw_evaluation_sets(other, normalised, intents_wheel, {}) != draw_evaluation_sets(SECTION, normalised, intents_wheel, {})


def test_a_language_the_corpus_lacks_is_named(normalised, intents_wheel):
    section = TasksSection(seed=1, languages=("en", "de", "sw"))
    with pytest.raises(UserError, match=r"asks for 'sw', which the corpus has no pairs with English for; it has de, zh-Hans"):
        draw_evaluation_sets(section, normalised, intents_wheel, {})
    with pytest.raises(UserError, match="no 'en'"):
        draw_evaluation_sets(TasksSection(seed=1, languages=("de",)), normalised, intents_wheel, {})


def test_a_language_too_small_for_a_pool_is_left_out_with_the_reason(tmp_path, normalised, intents_wheel):
    section = TasksSection(seed=1, languages=("en", "de"), retrieval=RetrievalSection(pool_share=0.001))
    sets = draw_evaluation_sets(section, normalised, intents_wheel, {})
    record = write_evaluation_sets(sets, section, tmp_path, SOURCES, "m")
    assert record["retrieval"] == {}
    assert "only 1 pairs" in record["retrieval_left_out"]["de"]
    assert retrieval_languages(tmp_path) == []
    assert json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8")) == record

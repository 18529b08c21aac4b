import pytest

from xlm.errors import UserError
from xlm.tasks.evaluation_sets import (
    LabelledText,
    RetrievalPair,
    labelled_languages,
    load_labelled,
    load_record,
    load_retrieval,
    retrieval_languages,
    save_labelled,
    save_retrieval,
    set_fingerprint,
)

SENTENCES = [
    LabelledText("de:A:1:0", "schalte\u2028die lampe ein", "A", "de:A:1", "test"),
    LabelledText("de:B:2:0", 'sag "hallo"', "B", "de:B:2", "dev"),
]
PAIRS = [RetrievalPair("k1", "Whales are mammals.", "鲸鱼是哺乳动物。"), RetrievalPair("k2", "a\tb", "c")]


def test_what_was_saved_is_loaded(tmp_path):
    save_labelled(tmp_path, "intents", "de", SENTENCES)
    save_retrieval(tmp_path, "zh-Hans", PAIRS)
    save_retrieval(tmp_path, "zh-Hans", PAIRS[:1], dev=True)
    save_retrieval(tmp_path, "de", PAIRS, dev=True)
    assert load_labelled(tmp_path, "intents", "de") == SENTENCES
    assert load_retrieval(tmp_path, "zh-Hans") == PAIRS
    assert load_retrieval(tmp_path, "zh-Hans", dev=True) == PAIRS[:1]
    assert labelled_languages(tmp_path, "intents") == ["de"]
    assert retrieval_languages(tmp_path) == ["zh-Hans"]
    assert retrieval_languages(tmp_path, dev=True) == ["de", "zh-Hans"]


def test_a_missing_set_names_the_languages_there_are(tmp_path):
    with pytest.raises(UserError, match=r"fr\.jsonl.*there is none; run pipelines/build_tasks\.py"):
        load_labelled(tmp_path, "intents", "fr")
    save_labelled(tmp_path, "intents", "de", SENTENCES)
    save_retrieval(tmp_path, "el", PAIRS)
    with pytest.raises(UserError, match="there is de"):
        load_labelled(tmp_path, "intents", "fr")
    with pytest.raises(UserError, match="there is el"):
        load_retrieval(tmp_path, "fr")
    with pytest.raises(UserError, match=r"build_tasks\.py first"):
        load_record(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ('{"key": "k", "source": "a"', r"el\.jsonl:2: .*not valid JSON"),
        ('{"key": "k", "source": "a"}', r"el\.jsonl:2: .*keys key, source, target"),
        ('{"key": "k", "source": "a", "target": 3}', r"el\.jsonl:2: .*strings"),
        ('["k", "a", "b"]', r"el\.jsonl:2: .*JSON object"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, damage, message):
    save_retrieval(tmp_path, "el", PAIRS[:1])
    path = tmp_path / "retrieval" / "el.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + damage + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_retrieval(tmp_path, "el")


def test_damage_that_is_valid_json_is_named_too(tmp_path):
    save_labelled(tmp_path, "intents", "de", SENTENCES)
    path = tmp_path / "intents" / "de.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"dev"', '"validation"'), encoding="utf-8")
    with pytest.raises(UserError, match=r"de\.jsonl:2: split 'validation' is none of train, dev, test"):
        load_labelled(tmp_path, "intents", "de")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not valid UTF-8 at byte 0"):
        load_labelled(tmp_path, "intents", "de")
    (tmp_path / "tasks.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(UserError, match="damaged"):
        load_record(tmp_path)


def test_the_fingerprint_hears_of_every_field_and_of_the_order():
    first = set_fingerprint(PAIRS)
    assert first == set_fingerprint(list(PAIRS))
    changed = [PAIRS[0], RetrievalPair("k2", "a\tb", "d")]
    assert len({first, set_fingerprint(changed), set_fingerprint(PAIRS[::-1]), set_fingerprint(PAIRS[:1])}) == 4

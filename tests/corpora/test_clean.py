import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.corpora.clean import clean_corpus, summary_table
from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.drops import DropCounts
from xlm.corpora.fold import fold, pair_key
from xlm.corpora.held_out import HeldOutText
from xlm.corpora.store import CorpusWriter, document_languages, pair_names, read_documents, read_pairs


def pair(english, other, language="de", corpus="a"):
    return SentencePair(pair_key(english), english, other, "en", language, corpus)


def document(text, language="en", corpus="wiki", starts=None):
    return Document(f"{corpus}:{text}", text, language, corpus, starts)


def clean(tmp_path, pairs=(), documents=(), held_out=None, limit=None, seed=1):
    with CorpusWriter(tmp_path / "normalised") as writer:
        for one in pairs:
            writer.pair(one)
        for one in documents:
            writer.document(one)
    drops = DropCounts()
    held = HeldOutText.build(held_out) if held_out is not None else None
    folder = tmp_path / f"corpus-{seed}-{limit}"
    counts = clean_corpus(tmp_path / "normalised", folder, held_out=held, max_documents=limit, seed=seed, drops=drops)
    kept = {name: [(one.source, one.target) for one in read_pairs(folder, name)] for name in pair_names(folder)}
    texts = {language: [one.text for one in read_documents(folder, language)] for language in document_languages(folder)}
    return kept, texts, drops, counts


def test_pairs_are_kept_once_over_all_packages(tmp_path):
    pairs = [
        pair("Save File", "Datei speichern"),
        pair("save file…", "datei speichern!", corpus="b"),
        pair("Save File", "Sichern", corpus="b"),
    ]
    kept, texts, drops, _ = clean(tmp_path, pairs)
    assert kept == {"en_de": [("Save File", "Datei speichern"), ("Save File", "Sichern")]}
    assert texts == {"en": ["Save File"], "de": ["Datei speichern", "Sichern"]}
    assert drops.nested() == {"de": {"b": {"duplicate": 1}}}


def test_two_translations_stay_the_most_frequent_first(tmp_path):
    pairs = [pair("On", "Auf"), pair("On", "An"), pair("On", "Ein"), pair("on", "ein", corpus="b"), pair("On", "Eingeschaltet")]
    kept, texts, drops, _ = clean(tmp_path, pairs)
    assert kept["en_de"] == [("On", "Auf"), ("On", "Ein")]
    assert texts["de"] == ["Auf", "Ein"]
    assert drops.by_reason() == {"duplicate": 1, "more than two translations": 2}


def test_held_out_english_takes_all_its_translations_along(tmp_path):
    pairs = [
        pair("Turn on the lights in the kitchen and in the bedroom", "Schalte das Licht ein"),
        pair("turn on the lights in the kitchen and in the bedroom!", "Allume la cuisine", "fr"),
        pair("Turn on the light in the kitchen and in the bedroom", "Licht in der Küche an"),  # Jaccard 37/46 = .804
        pair("Turn on the radio", "Radio an"),
        pair("Make it bright", "Mach hell"),
    ]
    documents = [document("Turn on the lights in the kitchen and in the bedroom."), document("Whales are mammals.")]
    held_out = ["turn on the lights in the kitchen and in the bedroom", "mach hell"]
    kept, texts, drops, counts = clean(tmp_path, pairs, documents, held_out)
    assert kept == {"en_de": [("Turn on the radio", "Radio an")]}
    assert counts.pairs == {"en_de": 1, "en_fr": 0}
    assert counts.documents == {"en": 2, "de": 1, "fr": 0}
    assert texts == {"en": ["Whales are mammals.", "Turn on the radio"], "de": ["Radio an"]}
    assert drops.nested() == {
        "de": {"a": {"held out for evaluation": 2, "near-duplicate of held-out text": 1}},
        "en": {"wiki": {"held out for evaluation": 1}},
        "fr": {"a": {"held out for evaluation": 1}},
    }


def test_documents_keep_order_and_sentences_and_catalogue_strings_follow_once(tmp_path):
    documents = [document("One. Two.", starts=(0, 5)), document("Water"), document("water!"), document("One. Two.", corpus="other")]
    kept, texts, drops, counts = clean(tmp_path, [pair("Water", "Wasser"), pair("Fire", "Feuer")], documents)
    assert texts["en"] == ["One. Two.", "Water", "Fire"]
    first = next(iter(read_documents(tmp_path / "corpus-1-None", "en")))
    assert first.sentence_starts == (0, 5)
    assert drops.nested() == {"en": {"wiki": {"duplicate": 1}, "other": {"duplicate": 1}}}
    assert counts.documents == {"en": 3, "de": 2}
    assert counts.words == {"en": 4, "de": 2}
    assert counts.by_source["en", "wiki"] == 2
    assert len(kept["en_de"]) == 2


def test_the_limit_keeps_a_sample_in_order_and_counts_the_rest(tmp_path):
    documents = [document(f"text {chr(97 + n // 26)}{chr(97 + n % 26)}") for n in range(100)]
    _, texts, drops, _ = clean(tmp_path, (), documents, limit=30)
    assert len(texts["en"]) == 30
    assert texts["en"] == sorted(texts["en"])
    assert texts["en"] != [one.text for one in documents[:30]]
    assert drops.by_reason() == {"over the limit of documents": 70}
    assert clean(tmp_path, (), documents, limit=30)[1] == texts
    assert clean(tmp_path, (), documents, limit=30, seed=2)[1] != texts


WORDS = st.lists(st.sampled_from(["Open", "open", "the", "door", "Port 1", "port 22", "!"]), min_size=1, max_size=3).map(" ".join)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(WORDS, WORDS, st.sampled_from("ab")), max_size=25), st.lists(WORDS, max_size=5), st.lists(WORDS, max_size=2))
def test_every_pair_and_document_is_kept_once_or_counted(tmp_path_factory, translations, texts, held_out):
    pairs = [pair(english, other, corpus=corpus) for english, other, corpus in translations if fold(english) and fold(other)]
    documents = [document(text) for text in texts if fold(text)]
    kept, kept_texts, drops, _ = clean(tmp_path_factory.mktemp("clean"), pairs, documents, held_out)
    rows = kept.get("en_de", [])
    reasons = drops.by_reason(["de"])
    assert len(rows) + reasons.total() == len(pairs)
    folded = [(fold(english), fold(other)) for english, other in rows]
    assert len(set(folded)) == len(folded)
    assert max([0, *(sum(one[0] == english for one in folded) for english, _ in folded)]) <= 2
    forbidden = {fold(text) for text in held_out} - {""}
    for language_texts in kept_texts.values():
        identities = [fold(text) for text in language_texts]
        assert len(set(identities)) == len(identities)
        assert not forbidden & set(identities)
    # Independent of the order of the rules: what is left of the English side is exactly the unmatched keys.
    matches = HeldOutText.build(held_out).matches([text for one in pairs for text in (one.source, one.target)])
    free = {one.key for index, one in enumerate(pairs) if not matches[2 * index : 2 * index + 2].any()}
    assert {pair_key(english) for english, _ in rows} == free


def test_the_table_shows_languages_and_reasons(tmp_path):
    _, _, drops, counts = clean(tmp_path, [pair("Water", "水", "ja"), pair("water", "水", "ja")], [document("Whales are mammals.")])
    table = summary_table(counts.summary(drops))
    assert [line.split()[:5] for line in table.splitlines()[1:3]] == [["en", "2", "4", "1", "0"], ["ja", "1", "1c", "1", "1"]]
    assert "dropped         1  duplicate" in table


@pytest.mark.parametrize("language", ["en", "zh-Hans"])
def test_a_language_with_documents_alone_is_kept(tmp_path, language):
    kept, texts, _, _ = clean(tmp_path, (), [document("鲸鱼", language)])
    assert kept == {}
    assert texts == {language: ["鲸鱼"]}

"""Derived pairs against a brute-force join, on a corpus where texts lack languages, repeat, and are out of order."""

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest

from xlm.corpora.documents import SentencePair
from xlm.corpora.store import write_pairs
from xlm.errors import UserError
from xlm.seeding import keyed_generator
from xlm.shards.key_table import KeyTable
from xlm.shards.n_way import n_way_names, n_way_sources
from xlm.shards.source import corpus_sources
from xlm.shards.turns import read_turns, takes_part

LANGUAGES = ("de", "fr", "es", "ru")
TEXTS = 60


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        (["en_de"], ["en_de"]),
        (["en_de", "en_fr", "en_zh-Hans"], ["de_fr", "de_zh-Hans", "en_de", "en_fr", "en_zh-Hans", "fr_zh-Hans"]),
        (["en_fr", "en_de", "fr_de"], ["en_de", "en_fr", "fr_de"]),
        (["en_de", "hi_ta"], ["en_de", "hi_ta"]),
        (["en_de", "hi_ta", "ta_de"], ["de_hi", "en_de", "en_hi", "en_ta", "hi_ta", "ta_de"]),
    ],
)
def test_every_two_connected_languages_have_a_corpus(pairs, expected):
    assert n_way_names(pairs) == expected


@pytest.fixture
def pairs(tmp_path):
    """en_de, en_fr, en_es, en_ru, and fr_de with some of its texts; written to tmp_path / corpus."""
    draw = keyed_generator("n-way test")
    made = {}
    for language in LANGUAGES:
        keys = [f"k{number}" for number in range(TEXTS) if draw.random() < 0.7]
        keys += keys[:3]  # three texts have a second translation
        draw.shuffle(keys)
        made[f"en_{language}"] = [(key, f"en {key}", f"{language} {key} {place}") for place, key in enumerate(keys)]
    made["fr_de"] = [(f"k{number}", f"fr k{number} own", f"de k{number} own") for number in range(0, TEXTS, 5)]
    for name, items in made.items():
        write_pairs(
            tmp_path / "corpus", name, (SentencePair(key, source, target, *name.split("_"), "made") for key, source, target in items)
        )
    return made


def stored(source):
    return [tuple(row.values()) for batch in source.read(0, source.items(), source.columns) for row in batch.to_pylist()]


def by_name(sources):
    return {source.name: source for source in sources}


def first_texts(pairs):
    """The first text of each key and language, corpora in the order of their names."""
    found = defaultdict(dict)
    for name in sorted(pairs):
        for key, *sides in pairs[name]:
            for language, text in zip(name.split("_"), sides, strict=True):
                found[key].setdefault(language, text)
    return found


def test_every_two_languages_of_a_text_make_a_pair(pairs, tmp_path):
    found, summary = n_way_sources(corpus_sources(tmp_path / "corpus"), tmp_path / "work", variants=5, seed=1)
    assert sorted(by_name(found)) == sorted([*pairs, "de_es", "de_ru", "es_fr", "es_ru", "fr_ru"])
    texts = first_texts(pairs)
    derived = 0
    for name, source in by_name(found).items():
        own = pairs.get(name, [])
        items = stored(source)
        assert items[: len(own)] == own
        first, second = name.split("_")
        known = {key for key, _, _ in own}
        expected = {(key, of[first], of[second]) for key, of in texts.items() if {first, second} <= set(of) and key not in known}
        assert set(items[len(own) :]) == expected
        assert len(items) == len(own) + len(expected)
        derived += len(expected)
    assert summary.derived_pairs == derived
    assert summary.keys == len(texts)
    assert summary.keys_in_three_or_more == sum(len(of) > 2 for of in texts.values())
    assert summary.left_out == sum(len(of) % 2 for of in texts.values())
    assert summary.pairs_in_no_variant == 0


def test_a_variant_matches_the_languages_of_every_text(pairs, tmp_path):
    found, _ = n_way_sources(corpus_sources(tmp_path / "corpus"), tmp_path / "work", variants=5, seed=1)
    texts = first_texts(pairs)
    turns = {source.name: read_turns(source.turns, 0, source.items()) for source in found}
    keys = {source.name: [row[0] for row in stored(source)] for source in found}
    met = defaultdict(set)
    for variant in range(5):
        chosen = defaultdict(set)
        for name in turns:
            for key, mine in zip(keys[name], takes_part(turns[name], variant), strict=True):
                if mine:
                    chosen[key].add(name)
        for key, of in texts.items():
            languages = [language for name in chosen[key] for language in name.split("_")]
            assert len(languages) == len(set(languages)) == len(of) - len(of) % 2
            met[key] |= {frozenset(name.split("_")) for name in chosen[key]}
    # Five variants are enough for five languages.
    assert all(met[key] == {frozenset(two) for two in combinations(of, 2)} for key, of in texts.items())


def test_too_few_variants_are_counted(pairs, tmp_path):
    every, full = n_way_sources(corpus_sources(tmp_path / "corpus"), tmp_path / "all", variants=5, seed=1)
    found, summary = n_way_sources(corpus_sources(tmp_path / "corpus"), tmp_path / "work", variants=2, seed=1)
    stored_pairs = {source.name: stored(source) for source in found}
    never = 0
    for source in every:
        turns = read_turns(source.turns, 0, source.items())
        shown = takes_part(turns, 0) | takes_part(turns, 1)
        never += int((~shown).sum())
        assert stored_pairs[source.name] == [pair for pair, of_pair in zip(stored(source), shown.tolist(), strict=True) if of_pair]
        kept = read_turns(by_name(found)[source.name].turns, 0, int(shown.sum()))
        assert (kept == turns[shown]).all()
    assert summary.pairs_in_no_variant == never > 0
    assert summary.pairs == full.pairs == sum(source.items() for source in every)
    assert summary.variants_for_all == full.variants_for_all == 5


def test_as_many_variants_as_said_show_all(pairs, tmp_path):
    for variants, all_shown in ((4, False), (5, True)):
        _, summary = n_way_sources(corpus_sources(tmp_path / "corpus"), tmp_path / str(variants), variants=variants, seed=1)
        assert (summary.pairs_in_no_variant == 0) is all_shown


@pytest.mark.parametrize("names", [["en_de", "de_en"], ["en_de", "en_fr", "fr_en"]])
def test_two_corpora_of_the_same_languages_are_a_sentence_with_both_names(names):
    with pytest.raises(UserError, match=rf"one pair corpus, but there are '{names[-2]}' and '{names[-1]}'; give their languages"):
        n_way_names(names)


def test_languages_are_counted_beyond_a_byte(tmp_path):
    languages = [f"{a}{b}" for a in "ab" for b in "cdefg"]
    for language in languages:
        write_pairs(tmp_path, f"en_{language}", (SentencePair(str(n), "x", "y", "en", language, "made") for n in range(3)))
    table = KeyTable(corpus_sources(tmp_path), tmp_path / "work")
    assert table.count_languages().tolist() == [11] * 3
    for place, language in enumerate(sorted([*languages, "en"])):
        assert table.count_languages(np.array([0, 2]), before=language).tolist() == [place] * 2


def test_corpora_without_a_shared_text_are_not_made(tmp_path):
    for language, keys in (("de", "ab"), ("fr", "cd")):
        write_pairs(tmp_path / "corpus", f"en_{language}", (SentencePair(key, key, key + "!", "en", language, "made") for key in keys))
    found, summary = n_way_sources(corpus_sources(tmp_path / "corpus"), tmp_path / "work", variants=1, seed=1)
    assert [source.name for source in found] == ["en_de", "en_fr"]
    assert (summary.derived_pairs, summary.keys, summary.left_out) == (0, 4, 0)

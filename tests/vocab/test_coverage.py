"""The coverage table against counts made by hand."""

import pytest

from xlm.vocab.coverage import coverage_table, measure_coverage, writes_words_apart


def test_counts_are_those_of_a_plain_loop(vocabulary, training_lines):
    texts = [*training_lines[:150], "🙂 unseen"]
    row = measure_coverage(vocabulary, "en", texts)
    ids = [token for text in texts for token in vocabulary.encode(text).tolist()]
    assert row.texts == len(texts)
    assert row.characters == sum(map(len, texts))
    assert row.pieces == len(ids)
    assert row.pieces_per_word == pytest.approx(len(ids) / sum(len(text.split()) for text in texts), abs=1e-6)
    assert row.pieces_per_character == pytest.approx(len(ids) / row.characters, abs=1e-6)
    assert row.vocabulary_used == len(set(ids))
    byte_pieces = sum(vocabulary.pieces[token].startswith("<0x") for token in ids)
    assert byte_pieces >= 4
    assert row.byte_rate == pytest.approx(byte_pieces / len(ids), abs=1e-6)
    assert row.unknown_rate == 0.0


def test_languages_without_spaces_have_no_rate_per_word(vocabulary):
    row = measure_coverage(vocabulary, "zh-Hans", ["的一是不了在"])
    assert row.pieces_per_word is None
    assert row.pieces_per_character > 0
    assert [writes_words_apart(language) for language in ("zh-Hant-TW", "ja", "th", "vi", "en")] == [False, False, False, True, True]


def test_nothing_to_measure_gives_zeros(vocabulary):
    row = measure_coverage(vocabulary, "en", [])
    assert (row.pieces, row.unknown_rate, row.pieces_per_word) == (0, 0.0, 0.0)


def test_the_table_has_a_line_a_language(vocabulary):
    rows = [measure_coverage(vocabulary, language, ["te st"]) for language in ("en", "ja")]
    lines = coverage_table(rows).splitlines()
    assert [line.split()[0] for line in lines] == ["language", "en", "ja"]
    assert len({len(line) for line in lines}) == 1

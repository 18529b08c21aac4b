import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_rows import SPECIALS, pieces_of, rows_of_ids

from xlm.batching.words import LANGUAGES_WITHOUT_SPACES, SCRIPTS_WITHOUT_SPACES, has_spaces, word_starts
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

IS_TEXT = ~np.isin(np.arange(300), SPECIALS)


@pytest.mark.parametrize(
    "language", ["zh-Hans", "zh-Hant", "zh", "ja", "th", "lo", "km", "my", "bo", "dz", "yue", "wuu", "nan-Hant", "jv-Java"]
)
def test_languages_without_spaces(language):
    assert not has_spaces(language)


@pytest.mark.parametrize(
    "language", ["en", "sw", "ko", "vi", "ar", "hi", "ur", "de-AT", "zh-Latn", "ja-Latn", "th-Latn", "jv", "sr-Latn", "nan", "am", "ka"]
)
def test_languages_with_spaces(language):
    assert has_spaces(language)


def test_lists_hold_tags_as_they_are_written():
    assert all(len(script) == 4 and script.istitle() for script in SCRIPTS_WITHOUT_SPACES)
    assert all(len(language) in (2, 3) and language.islower() for language in LANGUAGES_WITHOUT_SPACES)


def test_a_word_begins_at_white_space_after_a_special_piece_and_at_a_row():
    # Multiples of three carry white space; 2 and 3 are special.
    ids = np.array([2, 7, 8, 9, 10, 1, 11, 12, 3, 3, 13, 14, 15])
    expected = [0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1]
    begins = word_starts(ids, np.array([0, 11, 13]), IS_TEXT[ids], pieces_of().is_word_start, None)
    assert begins.astype(int).tolist() == expected


def test_without_spaces_every_piece_is_a_word():
    ids = np.array([2, 7, 8, 9, 3, 7, 8, 9, 3])
    spaced = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    begins = word_starts(ids, np.array([0]), IS_TEXT[ids], pieces_of().is_word_start, spaced)
    assert begins.astype(int).tolist() == [0, 1, 0, 1, 0, 1, 1, 1, 0]


@given(rows=rows_of_ids, number=st.integers(0, 1000))
def test_every_text_piece_is_in_a_word_and_no_special_piece_is(rows, number):
    ids, lengths = np.concatenate(rows), np.array([len(row) for row in rows])
    spaced = np.random.default_rng(number).random(ids.size) < 0.5
    text = IS_TEXT[ids]
    begins = word_starts(ids, np.cumsum(lengths) - lengths, text, pieces_of().is_word_start, spaced)
    expected = []
    for row in rows:
        for place, piece in enumerate(row.tolist()):
            first = place == 0 or row[place - 1] in SPECIALS
            expected.append(piece not in SPECIALS and (first or piece % 3 == 0 or not spaced[len(expected)]))
    assert begins.tolist() == expected


def test_words_of_a_real_vocabulary_are_the_words_of_the_text():
    draw = np.random.default_rng(0)
    letters = np.array(list("aeiounrstlkm"))
    known = ["".join(draw.choice(letters, draw.integers(2, 9))) for _ in range(400)]
    lines = [" ".join(draw.choice(known, 12)) for _ in range(800)]
    vocabulary = train_vocabulary(lines, VocabularySpec(size=700))
    # The last word is spelled in bytes.
    text = lines[0] + " unseen κόσμος"
    ids = vocabulary.encode(text).astype(np.int64)
    begins = word_starts(ids, np.array([0]), ids > 4, vocabulary.is_word_start, None)
    found = [vocabulary.decode(word) for word in np.split(ids, np.flatnonzero(begins)[1:])]
    assert found == text.split()
    assert len(found) < ids.size

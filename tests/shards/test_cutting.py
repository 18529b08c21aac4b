"""Cuts: every token once, no piece too long, and only where a cut is allowed."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.shards.cutting import cut_document, word_starts


def brute_force(length, capacity, sentences, words):
    """The definition, spelled out: the last sentence start that fits, else word start, else the row's end."""
    pieces, start = [], 0
    while length - start > capacity:
        window = range(start + 1, start + capacity + 1)
        ends = [end for end in window if end in sentences] or [end for end in window if end in words] or [start + capacity]
        pieces.append((start, ends[-1]))
        start = ends[-1]
    return [*pieces, (start, length)]


@given(
    length=st.integers(1, 120),
    capacity=st.integers(1, 30),
    words=st.sets(st.integers(0, 119)),
    sentences=st.none() | st.sets(st.integers(0, 119), max_size=12),
)
def test_cuts_follow_the_definition(length, capacity, words, sentences):
    words = sorted(word for word in words if word < length)
    sentences = None if sentences is None else sorted(sentence for sentence in sentences if sentence < length)
    pieces = cut_document(length, capacity, sentence_starts=sentences, word_starts=words)
    assert pieces == brute_force(length, capacity, set(sentences or ()), set(words))
    assert [token for start, end in pieces for token in range(start, end)] == list(range(length))
    assert all(0 < end - start <= capacity for start, end in pieces)
    for previous, (start, _) in pairwise(pieces):
        inside_a_word = start not in words and start not in set(sentences or ())
        # A cut inside a word only where no word begins in the whole reach of the row.
        assert not inside_a_word or not set(words) & set(range(previous[0] + 1, previous[0] + capacity + 1))


def test_sentences_go_before_words():
    assert cut_document(10, 6, sentence_starts=[0, 4], word_starts=[0, 2, 4, 6, 8]) == [(0, 4), (4, 10)]
    assert cut_document(10, 6, sentence_starts=None, word_starts=[0, 2, 4, 6, 8]) == [(0, 6), (6, 10)]
    assert cut_document(10, 6, sentence_starts=[0], word_starts=[0]) == [(0, 6), (6, 10)]


def test_word_starts_are_looked_up_by_piece():
    flags = np.array([False, True, False, True])
    assert word_starts(np.array([3, 2, 2, 1, 0, 3], dtype=np.uint16), flags) == [0, 3, 5]

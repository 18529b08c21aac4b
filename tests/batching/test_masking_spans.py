import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_rows import ALPHA, MASK, SPECIALS, mask_rows, masker_of, pieces_of, rates, rows_of_ids, seeds_of, words_of
from scipy import stats

from xlm.batching.keyed_words import words, words_at
from xlm.batching.masking_rows import predictions_in
from xlm.batching.masking_spans import SpanLengths
from xlm.config.phases import SpanSection


@pytest.mark.parametrize(
    ("section", "mean"),
    [
        # SpanBERT, section 3.1: "this yields an average span length of mean(l) = 3.8".
        ({"geometric_p": 0.2, "longest": 10}, 3.797),
        ({"lengths": "harmonic", "longest": 3}, 18 / 11),  # ALBERT: 6/11, 3/11, 2/11 of 1, 2, 3
        ({"geometric_p": 1.0, "longest": 5}, 1.0),
        ({"longest": 1}, 1.0),
    ],
)
def test_lengths_follow_their_distribution(section, mean):
    lengths = SpanLengths(SpanSection(**section))
    support = np.arange(1, lengths.probabilities.size + 1)
    assert lengths.probabilities.sum() == pytest.approx(1.0)
    assert (lengths.probabilities * support).sum() == pytest.approx(mean, abs=5e-4)
    drawn = np.bincount(lengths.of(words(seeds_of(1), np.array([100_000]), 0)), minlength=support.size + 1)[1:]
    possible = lengths.probabilities > 0
    assert drawn.size == support.size
    assert drawn[~possible].sum() == 0
    if possible.sum() > 1:
        assert stats.chisquare(drawn[possible], lengths.probabilities[possible] * 100_000).pvalue > ALPHA


def test_ratios_are_those_of_the_definitions():
    geometric = SpanLengths(SpanSection(geometric_p=0.3)).probabilities
    assert geometric[1:] / geometric[:-1] == pytest.approx([0.7] * 9)
    harmonic = SpanLengths(SpanSection(lengths="harmonic", longest=4)).probabilities
    assert harmonic[0] / harmonic == pytest.approx([1, 2, 3, 4])


def reference(row, spaced, rate, seed, lengths):
    """Draw spans one by one; return every masked place with the first place of its span."""
    found = words_of(row, spaced)
    if not found:
        return {}
    firsts = np.array([word[0] for word in found])
    keys = (words_at(np.array([seed]), firsts, 0) >> np.uint64(16)).tolist()
    drawn = lengths.of(words_at(np.array([seed]), firsts, 3)).tolist()
    budget = int(predictions_in(np.array([sum(map(len, found))]), rate)[0])
    masked = {}
    for _, number in sorted(zip(keys, range(len(found)), strict=True)):
        if len(masked) == budget:
            break
        if found[number][0] in masked:
            continue
        span = list(found[number])
        for word in found[number + 1 : number + drawn[number]]:
            if word[0] != span[-1] + 1:
                break
            span += word
        for place in [place for place in span if place not in masked][: budget - len(masked)]:
            masked[place] = found[number][0]
    return masked


@pytest.mark.parametrize("section", [{}, {"lengths": "harmonic", "longest": 3}])
@given(rows=rows_of_ids, rate=rates, number=st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_spans_are_drawn_as_one_by_one(section, rows, rate, number):
    seeds = seeds_of(len(rows), number)
    spaced = np.random.default_rng(number).random(sum(map(len, rows))) < 0.5
    lengths = SpanLengths(SpanSection(**section))
    masked = mask_rows(masker_of("span", span=section), rows, rate, seeds, spaced=spaced)
    expected, start = [], 0
    for row, seed in zip(rows, seeds, strict=True):
        of_row = reference(row, spaced[start : start + len(row)], rate, seed, lengths)
        expected += [start + place for place in sorted(of_row)]
        start += len(row)
    assert masked.positions.tolist() == expected


@given(rows=rows_of_ids, rate=rates, number=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_a_span_has_one_fate(rows, rate, number):
    seeds = seeds_of(len(rows), number)
    masked = mask_rows(masker_of("span"), rows, rate, seeds)
    shown = dict(zip(masked.positions.tolist(), (masked.input_ids[masked.positions] == MASK).tolist(), strict=True))
    start = 0
    for row, seed in zip(rows, seeds, strict=True):
        of_row = reference(row, np.ones(len(row), dtype=bool), rate, seed, SpanLengths(SpanSection()))
        for place, first in of_row.items():
            assert shown[start + place] == shown[start + first]
        start += len(row)


def test_random_pieces_of_a_span_differ():
    masker = masker_of("span", masked_share=0.0, random_share=1.0, span={"geometric_p": 0.01, "longest": 10})
    masked = mask_rows(masker, [np.full(100, 9)] * 200, 0.3)
    shown = masked.input_ids[masked.positions]
    assert np.unique(shown).size > 250
    assert stats.chisquare(np.bincount(shown, minlength=300)[5:]).pvalue > ALPHA


def test_fates_of_spans_are_eighty_ten_ten():
    # One span a row: as long as the rate asks for, cut there.
    masker = masker_of("span", span={"geometric_p": 1e-9, "longest": 10})
    masked = mask_rows(masker, [np.full(110, 9)] * 20_000, 0.01)
    shown = masked.input_ids[masked.positions]
    found = [(shown == MASK).sum(), ((shown != MASK) & (shown != 9)).sum(), (shown == 9).sum()]
    drawn = 0.1 * 294 / 295
    assert stats.chisquare(found, np.array([0.8, drawn, 0.2 - drawn]) * shown.size).pvalue > ALPHA


def test_no_span_crosses_a_special_piece_or_a_row():
    # Sequences of three words: were spans of ten words to cross, they would be longer than a sequence.
    masker = masker_of("span", span={"geometric_p": 1e-9, "longest": 10})
    rows = [np.array([2, 9, 12, 15, 3] * 10)] * 300
    masked = mask_rows(masker, rows, 0.1)
    assert not np.isin(np.concatenate(rows)[masked.positions], SPECIALS).any()
    is_mask = (masked.input_ids == MASK).reshape(-1, 5)
    assert (is_mask.sum(axis=1) <= 3).all()
    # Spans begin at any of the three words, so one in three of their first places is each.
    begins = np.diff(is_mask.astype(int), axis=1, prepend=0) == 1
    assert (begins.sum(axis=0)[1:4] > 0).all()


def test_spans_begin_where_words_begin():
    draw = np.random.default_rng(1)
    rows = [draw.integers(5, 300, 200) for _ in range(200)]
    masked = mask_rows(masker_of("span"), rows, 0.15)
    chosen = np.zeros((200, 200), dtype=bool)
    chosen.ravel()[masked.positions] = True
    ids = np.stack(rows)
    begins = np.diff(chosen.astype(int), axis=1, prepend=0) == 1
    word_begins = pieces_of().is_word_start[ids]
    word_begins[:, 0] = True
    assert word_begins[begins].all()

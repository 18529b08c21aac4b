"""Blocks of every layout: every token of every kept item once, no row over its length, cuts only where they may fall."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shards.made_up_shards import WORD_FLAGS, made_up_shard, rows_of
from xlm.seeding import keyed_generator
from xlm.shards.block_plan import ONE_SENTENCE, TOO_LONG, block_plan
from xlm.shards.layouts import RULES

PAIR_LAYOUTS = [layout for layout, rule in RULES.items() if rule.kind == "pair"]


@st.composite
def documents(draw, most=90):
    """Ids of documents, and for some of them where sentences begin."""
    ids = draw(st.lists(st.lists(st.integers(5, 24), min_size=1, max_size=most), max_size=20))
    starts = [draw(st.none() | st.sets(st.integers(1, max(1, len(each) - 1)), max_size=9)) for each in ids]
    known = [
        None if of_one is None else sorted({0, *(n for n in of_one if n < len(each))}) for of_one, each in zip(starts, ids, strict=True)
    ]
    return ids, known


def plan_of(ids, starts, layout, length, variant=0):
    shard = made_up_shard("monolingual", ids, sentence_starts=starts)
    plan, dropped = block_plan(shard, layout, length, is_word_start=WORD_FLAGS, generator=keyed_generator("plan", variant))
    return rows_of(plan), dropped


def covered(rows):
    return Counter((item, token) for row in rows for item, start, end in row for token in range(start, end))


def whole(ids, items=None):
    return Counter((item, token) for item, each in enumerate(ids) if items is None or item in items for token in range(len(each)))


def check_cut(ids, starts, item, start, longest):
    """A piece begins a document or a sentence; else a word; else only inside a word that is longer than a row."""
    if start == 0 or (starts[item] is not None and start in starts[item]):
        return
    words = [0, *(place for place, piece in enumerate(ids[item]) if WORD_FLAGS[piece] and place), len(ids[item])]
    inside = max(place for place in words if place <= start)
    assert start == inside or min(place for place in words if place > start) - inside > longest, (item, start)


@settings(deadline=None)
@given(documents=documents(), length=st.integers(8, 40), variant=st.integers(0, 3))
def test_documents_are_covered_once(documents, length, variant):
    ids, starts = documents
    rows, dropped = plan_of(ids, starts, "documents", length, variant)
    assert dropped == {}
    assert covered(rows) == whole(ids)
    for row in rows:
        assert row
        assert sum(end - start + 2 for _, start, end in row) <= length
        for item, start, end in row:
            check_cut(ids, starts, item, start, length - 2)
            # What fits a row is never cut.
            assert len(ids[item]) > length - 2 or (start, end) == (0, len(ids[item]))


@settings(deadline=None)
@given(documents=documents(), length=st.integers(8, 40), variant=st.integers(0, 3))
def test_full_sentences_are_covered_once_and_whole(documents, length, variant):
    ids, starts = documents
    rows, dropped = plan_of(ids, starts, "full_sentences", length, variant)
    assert dropped == {}
    assert covered(rows) == whole(ids)
    for row in rows:
        assert row
        assert 1 + sum(end - start + 1 for _, start, end in row) <= length
        for item, start, _ in row:
            check_cut(ids, starts, item, start, length - 2)
            bounds = [0] if starts[item] is None else starts[item]
            sentence = max(place for place in bounds if place <= start)
            after = min([place for place in bounds if place > sentence] + [len(ids[item])])
            # A sentence that fits a row is never cut.
            assert start == sentence or after - sentence > length - 2


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.booleans()), max_size=40),
    length=st.integers(8, 48),
    layout=st.sampled_from(PAIR_LAYOUTS),
    choose=st.booleans(),
)
def test_pairs_are_whole_or_counted(pairs, length, layout, choose):
    shard = made_up_shard("pair", *([np.full(pair[side], 5) for pair in pairs] for side in (0, 1)))
    chosen = np.array([pair[2] for pair in pairs], dtype=bool) if choose else None
    plan, dropped = block_plan(shard, layout, length, is_word_start=WORD_FLAGS, generator=keyed_generator("plan"), chosen=chosen)
    special = RULES[layout].per_unit
    taken = {item: source + target for item, (source, target, wanted) in enumerate(pairs) if wanted or not choose}
    fitting = {item: both for item, both in taken.items() if both + special <= length}
    placed = [segment for row in rows_of(plan) for segment in row]
    assert sorted(placed) == [(item, 0, both) for item, both in sorted(fitting.items())]
    assert dropped.get(TOO_LONG, 0) == len(taken) - len(fitting)
    assert all(row and sum(end + special for _, _, end in row) <= length for row in rows_of(plan))


@settings(deadline=None)
@given(documents=documents(), length=st.integers(8, 40), variant=st.integers(0, 3))
@pytest.mark.parametrize("layout", ["next_sentence", "sentence_order"])
def test_units_of_two_cover_documents_of_two_sentences(layout, documents, length, variant):
    ids, starts = documents
    rows, dropped = plan_of(ids, starts, layout, length, variant)
    kept = {item for item, known in enumerate(starts) if known is not None and len(known) > 1}
    assert dropped.get(ONE_SENTENCE, 0) == len(ids) - len(kept)
    assert covered(rows) == whole(ids, kept)
    for row in rows:
        assert row
        assert len(row) % 2 == 0
        units = list(zip(row[::2], row[1::2], strict=True))
        assert sum(3 + sum(end - start for _, start, end in unit) for unit in units) <= length
        for (item, start, end), (other, begin, stop) in units:
            assert start < end
            assert begin < stop
            continues = (item, end) == (other, begin)
            assert continues or item != other
            assert continues or layout == "next_sentence"


@pytest.mark.parametrize("layout", RULES)
def test_variants_put_different_neighbours_together(layout):
    generator = keyed_generator("variants")
    columns = [[generator.integers(5, 25, size=int(n)) for n in generator.integers(4, 40, size=300)] for _ in range(2)]
    kind = RULES[layout].kind
    starts = [sorted({0, len(ids) // 2, len(ids) // 3}) for ids in columns[0]] if kind == "monolingual" else None
    shard = made_up_shard(kind, *columns[: 1 if kind == "monolingual" else 2], sentence_starts=starts)
    plans = [
        rows_of(block_plan(shard, layout, 96, is_word_start=WORD_FLAGS, generator=keyed_generator("plan", variant))[0])
        for variant in (0, 1, 0)
    ]
    assert plans[0] == plans[2]
    neighbours = [{frozenset(item for item, _, _ in row) for row in plan} for plan in plans[:2]]
    assert len(neighbours[0] & neighbours[1]) < len(neighbours[0]) / 10


def test_a_block_without_items_has_no_rows():
    for layout, rule in RULES.items():
        shard = made_up_shard(rule.kind, *([[]] if rule.kind == "monolingual" else [[], []]))
        plan, dropped = block_plan(shard, layout, 32, is_word_start=WORD_FLAGS, generator=keyed_generator("plan"))
        assert (plan.rows, len(plan.segments), dropped) == (0, 0, {})

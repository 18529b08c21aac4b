"""Row plans: every token of every kept item once per variant, no row over its length."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.seeding import keyed_generator
from xlm.shards.row_plan import RowPlan, Segments, document_segments, pack_rows, pair_segments

WORD_FLAGS = np.array([False] * 5 + [True, False] * 10)
documents = st.lists(st.lists(st.integers(5, 24), min_size=1, max_size=60), max_size=25)


def flat(documents):
    lengths = [len(document) for document in documents]
    return np.array([token for document in documents for token in document], dtype=np.uint16), np.cumsum([0, *lengths])


def rows_of(plan):
    segments = plan.segments
    return [
        [(int(segments.item[s]), int(segments.start[s]), int(segments.end[s])) for s in range(plan.offsets[r], plan.offsets[r + 1])]
        for r in range(plan.rows)
    ]


@given(documents=documents, length=st.integers(8, 40), variant=st.integers(0, 3))
def test_documents_are_covered_once(documents, length, variant):
    tokens, offsets = flat(documents)
    segments = document_segments(tokens, offsets, {}, WORD_FLAGS, length=length)
    plan = pack_rows(segments, objective="mlm", length=length, generator=keyed_generator("plan", variant))
    covered = Counter((item, token) for row in rows_of(plan) for item, start, end in row for token in range(start, end))
    assert covered == Counter((item, token) for item, document in enumerate(documents) for token in range(len(document)))
    assert all(row and sum(end - start + 2 for _, start, end in row) <= length for row in rows_of(plan))
    for item, start, _ in (segment for row in rows_of(plan) for segment in row):
        word_begins = np.flatnonzero(WORD_FLAGS[documents[item]])
        # A piece begins a document or a word, unless the word before it alone is longer than a row.
        before = word_begins[word_begins < start].max(initial=0)
        assert start == 0 or start in word_begins or start - before >= length - 2


@given(
    pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=40),
    length=st.integers(8, 48),
    objective=st.sampled_from(["tlm", "contrastive"]),
)
def test_pairs_are_whole_or_counted(pairs, length, objective):
    source, target = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    segments, dropped = pair_segments(source, target, objective=objective, length=length)
    plan = pack_rows(segments, objective=objective, length=length, generator=keyed_generator("plan"))
    special = {"tlm": 3, "contrastive": 4}[objective]
    fitting = {item: s + t for item, (s, t) in enumerate(pairs) if s + t + special <= length}
    placed = [segment for row in rows_of(plan) for segment in row]
    assert sorted(placed) == [(item, 0, both) for item, both in sorted(fitting.items())]
    assert dropped == len(pairs) - len(fitting)
    assert all(row and sum(end + special for _, _, end in row) <= length for row in rows_of(plan))


def test_sentence_starts_decide_cuts_where_they_are_known():
    tokens, offsets = flat([[5] * 20, [5] * 20])
    segments = document_segments(tokens, offsets, {1: [0, 6, 12]}, WORD_FLAGS, length=12)
    pieces = sorted(zip(segments.item.tolist(), segments.start.tolist(), segments.end.tolist(), strict=True))
    assert pieces == [(0, 0, 10), (0, 10, 20), (1, 0, 6), (1, 6, 12), (1, 12, 20)]


def test_variants_put_different_neighbours_together():
    segments, _ = pair_segments(np.full(200, 5), np.full(200, 5), objective="tlm", length=64)
    plans = [pack_rows(segments, objective="tlm", length=64, generator=keyed_generator("plan", variant)) for variant in (0, 1, 0)]
    assert rows_of(plans[0]) == rows_of(plans[2])
    neighbours = [{frozenset(item for item, _, _ in row) for row in rows_of(plan)} for plan in plans[:2]]
    assert len(neighbours[0] & neighbours[1]) < len(neighbours[0]) / 10


def test_written_plans_read_back_and_join(tmp_path):
    plans = []
    for number in range(3):
        segments, _ = pair_segments(np.arange(1, 20 + number), np.arange(1, 20 + number), objective="tlm", length=50)
        plans.append(pack_rows(segments, objective="tlm", length=50, generator=keyed_generator(number)))
    joined = RowPlan.concatenate(plans, [0, 19, 39])
    joined.write(tmp_path / "plans" / "plan.arrow")
    read = RowPlan.read(tmp_path / "plans" / "plan.arrow")
    assert rows_of(read) == rows_of(joined)
    expected = [
        [(item + first, start, end) for item, start, end in row]
        for plan, first in zip(plans, [0, 19, 39], strict=True)
        for row in rows_of(plan)
    ]
    assert rows_of(read) == expected
    assert not read.segments.item.flags.owndata
    used = sum(end + 3 for row in expected for _, _, end in row)
    assert read.fill("tlm", 50) == used / (50 * len(expected))


def test_a_plan_without_rows_is_a_plan(tmp_path):
    nothing = np.empty(0, dtype=np.uint32)
    plan = pack_rows(Segments(nothing, nothing, nothing), objective="mlm", length=16, generator=keyed_generator(0))
    plan.write(tmp_path / "plan.arrow")
    read = RowPlan.read(tmp_path / "plan.arrow")
    assert (read.rows, len(read.segments), read.fill("mlm", 16)) == (0, 0, 1.0)
    assert RowPlan.concatenate([], []).rows == 0

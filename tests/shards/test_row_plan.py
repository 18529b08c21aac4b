"""Row plans: what a block says of itself, and that a file gives it back."""

import numpy as np
import pytest

from tests.shards.made_up_shards import rows_of
from xlm.runs.fingerprint import file_sha256
from xlm.shards.layouts import RULES
from xlm.shards.row_plan import RowPlan, Segments


def plan_of(rows):
    segments = [segment for row in rows for segment in row]
    columns = np.array(segments, dtype=np.uint32).reshape(-1, 3).T
    return RowPlan(np.cumsum([0, *map(len, rows)]), Segments(*columns))


ROWS = [[(0, 0, 10), (1, 0, 4)], [(2, 5, 8), (2, 8, 20)]]


@pytest.mark.parametrize(
    ("layout", "special"),
    [
        ("documents", 4 * 2),
        ("full_sentences", 2 * 1 + 4 * 1),
        ("pairs", 4 * 3),
        ("pairs_xlm", 4 * 4),
        ("separate_pairs", 4 * 4),
        ("next_sentence", 2 * 3),
        ("sentence_order", 2 * 3),
    ],
)
def test_fill_counts_the_special_pieces_of_the_layout(layout, special):
    plan = plan_of(ROWS)
    assert plan.text_tokens == 29
    assert plan.used(layout) == 29 + special
    assert plan.fill(layout, 32) == (29 + special) / 64


def test_every_layout_has_a_test_above():
    assert len(RULES) == 7


def test_written_plans_read_back(tmp_path):
    facts = plan_of(ROWS).write(tmp_path / "plans" / "plan.arrow")
    path = tmp_path / "plans" / "plan.arrow"
    assert (facts.size_bytes, facts.sha256) == (path.stat().st_size, file_sha256(path))
    read = RowPlan.read(path)
    assert rows_of(read) == ROWS
    assert not read.segments.item.flags.owndata


def test_a_plan_without_rows_is_a_plan(tmp_path):
    plan_of([]).write(tmp_path / "plan.arrow")
    read = RowPlan.read(tmp_path / "plan.arrow")
    assert (read.rows, len(read.segments), read.text_tokens, read.fill("documents", 16)) == (0, 0, 0, 1.0)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shards.stored import item_of, row_of
from xlm.batching.row_reader import RowReader, runs
from xlm.mixing.batch_rows import BatchRows


@pytest.mark.parametrize(
    ("layout", "corpora"), [("documents", ("de", "en")), ("separate_pairs", ("en_de", "en_sw")), ("documents", ("sw",))]
)
def test_texts_are_those_of_the_row_plan(every_objective, shards, layout, corpora):
    plan = every_objective()
    objective = "mlm" if layout == "documents" else "contrastive"
    leaves = [number for number, leaf in enumerate(plan.leaves) if leaf.objective == objective and leaf.corpus in corpora]
    addresses = [
        (leaf, variant, row)
        for leaf in leaves
        for variant in (0, 1)
        for row in range(0, shards.index.plan(plan.leaves[leaf].corpus, layout, 32, variant).rows, 3)
    ]
    leaf, variant, row = (np.array(column) for column in zip(*addresses, strict=True))
    rows = BatchRows(0, 0, 32, 0.15, np.arange(len(leaf)), leaf, variant, variant, row)
    reader = RowReader(shards, plan.leaves, plan.languages)
    read = reader.read(rows, layout)
    found = [
        (plan.leaves[of_leaf].corpus, row_of(shards, plan.leaves[of_leaf].corpus, layout, 32, of_variant, of_row))
        for of_leaf, of_variant, of_row in addresses
    ]
    assert read.texts.segments_per_row.tolist() == [len(segments) for _, segments in found]
    segments = [(corpus, segment) for corpus, of_row in found for segment in of_row]
    assert reader.corpus_items(read).tolist() == [segment.item for _, segment in segments]
    assert {segment.item // 70 for _, segment in segments} == {0, 1, 2}  # every shard of a corpus took part
    assert reader.names(read) == [item_of(shards, corpus, segment.item)[0] for corpus, segment in segments]
    assert read.texts.offsets.tolist() == [segment.start for _, segment in segments]
    for number, (corpus, segment) in enumerate(segments):
        expected = item_of(shards, corpus, segment.item)[1]
        if layout == "documents":
            expected = [expected[0][segment.start : segment.end]]
        for side, ids in enumerate(expected):
            start = read.texts.starts[side, number]
            assert read.texts.pieces[start : start + read.texts.lengths[side, number]].tolist() == ids.tolist()
            assert plan.languages[read.texts.languages[side, number]] == corpus.split("_")[side]


@given(values=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=12))
def test_runs_are_of_equal_neighbours(values):
    first, second = (np.array(column) for column in zip(*values, strict=True))
    found = runs(first, second)
    assert [place for begin, end in found for place in range(begin, end)] == list(range(len(values)))
    assert all(len(set(values[begin:end])) == 1 for begin, end in found)
    assert all(values[end - 1] != values[end] for _, end in found[:-1])


def test_only_blocks_of_shards_that_lie_here_are_kept_at_hand(every_objective, shards, monkeypatch):
    """Views keep files mapped, and the bytes mapped of fetched shards are bounded."""
    plan = every_objective()
    leaf = np.array([next(number for number, leaf in enumerate(plan.leaves) if leaf.objective == "mlm")] * 2)
    rows = BatchRows(0, 0, 32, 0.15, np.arange(2), leaf, np.zeros_like(leaf), np.zeros_like(leaf), np.arange(2))
    for bound, kept in ((None, 1), (1 << 20, 0)):
        monkeypatch.setattr(type(shards.store), "max_mapped_bytes", bound)
        reader = RowReader(shards, plan.leaves, plan.languages)
        reader.read(rows, "documents")
        assert reader._opened.cache_info().currsize == kept

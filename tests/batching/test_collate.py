import numpy as np
import torch

from xlm.batching.collate import RowsOfBatch, collate
from xlm.batching.packed_batch import OBJECTIVE_CODE, PAIRS_PER_ROW, SegmentSource
from xlm.batching.packed_rows import PackedRows


def rows(objective, lengths, sequences_per_row, predict=(), first=0, key=-1):
    tokens = sum(lengths)
    return PackedRows(
        objective=objective,
        input_ids=np.arange(first, first + tokens),
        position_ids=np.concatenate([np.arange(length) for length in lengths]),
        token_type_ids=np.zeros(tokens, dtype=np.int64),
        language_ids=np.full(tokens, 7),
        sequence_lengths=np.array(lengths),
        sequences_per_row=np.array(sequences_per_row),
        predict_positions=np.array(predict, dtype=np.int64),
        labels=np.array(predict, dtype=np.int64) + 1000,
        pair_keys=np.full(len(lengths), key),
        sequence_labels=np.full(len(lengths), -1),
    )


def source(name):
    return (SegmentSource("en", 0, name, 0, 1),)


PARTS = [
    RowsOfBatch(rows("contrastive", [3, 2, 2, 3, 4, 4], [4, 2], key=70), np.array([6, 9]), [source(name) for name in "abcdef"]),
    RowsOfBatch(rows("mlm", [5, 6, 7], [2, 1], predict=[1, 4, 10, 12], first=100), np.array([3, 12]), [source(name) for name in "ghi"]),
]


def test_rows_are_joined_and_positions_shifted():
    (batch,) = collate(PARTS, [4])
    assert batch.cu_seqlens.tolist() == [0, 3, 5, 7, 10, 14, 18, 23, 29, 36]
    assert batch.cu_seqlens.dtype == torch.int32
    first, second = 6 * PAIRS_PER_ROW, 9 * PAIRS_PER_ROW
    assert batch.pair_index.tolist() == [first, first, first + 1, first + 1, second, second, -1, -1, -1]
    assert batch.pair_key.tolist() == [70] * 6 + [-1] * 3
    assert batch.row_id.tolist() == [6, 6, 6, 6, 9, 9, 3, 3, 12]
    assert batch.sequence_objective.tolist() == [OBJECTIVE_CODE["contrastive"]] * 6 + [OBJECTIVE_CODE["mlm"]] * 3
    assert batch.prediction_objective.tolist() == [OBJECTIVE_CODE["mlm"]] * 4
    assert batch.predict_positions.tolist() == [19, 22, 28, 30]
    assert batch.labels.tolist() == [1001, 1004, 1010, 1012]
    assert [sources[0].name for sources in batch.provenance] == list("abcdefghi")


def test_micro_batches_are_cut_between_rows_and_count_from_0():
    batches = collate(PARTS, [1, 0, 2, 1])
    assert [batch.cu_seqlens.tolist() for batch in batches] == [[0, 3, 5, 7, 10], [0], [0, 4, 8, 13, 19], [0, 7]]
    assert [batch.predict_positions.tolist() for batch in batches] == [[], [], [9, 12, 18], [1]]
    assert [batch.labels.tolist() for batch in batches] == [[], [], [1001, 1004, 1010], [1012]]
    assert [batch.row_id.tolist() for batch in batches] == [[6, 6, 6, 6], [], [9, 9, 3, 3], [12]]
    assert batches[2].input_ids.tolist() == [*range(10, 18), *range(100, 111)]
    assert [len(batch.provenance) for batch in batches] == [4, 0, 4, 1]


def test_no_rows_give_an_empty_batch_of_the_same_types():
    (full,) = collate(PARTS, [4])
    (empty,) = collate([], [0])
    assert empty.tokens == empty.sequences == 0
    assert empty.cu_seqlens.tolist() == [0]
    for name, tensor in vars(empty).items():
        if name != "provenance":
            assert tensor.dtype == getattr(full, name).dtype, name


def test_a_batch_moves_whole():
    (batch,) = collate(PARTS, [4])
    moved = batch.to("meta")
    assert moved.provenance == batch.provenance
    assert (moved.tokens, moved.sequences) == (batch.tokens, batch.sequences) == (36, 9)
    assert all(tensor.device == torch.device("meta") for name, tensor in vars(moved).items() if name != "provenance")

import numpy as np
import torch

from xlm.batching.collate import BatchRow, collate
from xlm.batching.contrastive import contrastive_row
from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_row
from xlm.batching.packed_batch import OBJECTIVE_CODE
from xlm.seeding import keyed_generator


def test_rows_are_joined_and_positions_shifted(pieces):
    contrastive = contrastive_row([(np.array([10]), np.array([20])), (np.array([11]), np.array([21]))], [70, 71], (0, 1), pieces=pieces)
    mlm = mlm_row([np.arange(30, 40)], 2, pieces=pieces, masker=Masker(pieces), mask_rate=0.3, generator=keyed_generator(5))
    batch = collate([BatchRow(6, contrastive, 40, ("a", "b", "c", "d")), BatchRow(3, mlm, 44, ("e",))])
    assert batch.tokens == 24
    assert batch.sequences == 5
    assert batch.cu_seqlens.tolist() == [0, 3, 6, 9, 12, 24]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.pair_index.tolist() == [40, 40, 41, 41, -1]
    assert batch.pair_key.tolist() == [70, 70, 71, 71, -1]
    assert batch.row_id.tolist() == [6, 6, 6, 6, 3]
    assert batch.sequence_objective.tolist() == [OBJECTIVE_CODE["contrastive"]] * 4 + [OBJECTIVE_CODE["mlm"]]
    assert batch.prediction_objective.tolist() == [OBJECTIVE_CODE["mlm"]] * 3
    assert batch.predict_positions.min() >= 12
    restored = batch.input_ids.clone()
    restored[batch.predict_positions] = batch.labels
    assert restored[12:].tolist() == [2, *range(30, 40), 3]
    assert batch.provenance == ("a", "b", "c", "d", "e")


def test_no_rows_give_an_empty_batch_of_the_same_types(pieces):
    full = collate([BatchRow(0, contrastive_row([(np.array([10]), np.array([20]))], [1], (0, 1), pieces=pieces))])
    empty = collate([])
    assert empty.tokens == empty.sequences == 0
    assert empty.cu_seqlens.tolist() == [0]
    for name, tensor in vars(empty).items():
        if name != "provenance":
            assert tensor.dtype == getattr(full, name).dtype, name

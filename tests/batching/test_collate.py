import numpy as np
import torch

from xlm.batching.collate import PlacedRows, collate
from xlm.batching.contrastive import contrastive_rows
from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_rows
from xlm.batching.packed_batch import OBJECTIVE_CODE
from xlm.batching.texts import Texts
from xlm.seeding import key_digest


def pairs(pieces):
    sources, targets = (
        Texts.of([np.array([10]), np.array([11]), np.array([12])]),
        Texts.of([np.array([20]), np.array([21]), np.array([22])]),
    )
    return contrastive_rows(sources, targets, np.array([2, 1]), np.tile([[0, 1]], (3, 1)), np.array([70, 71, 72]), pieces=pieces)


def test_rows_are_joined_and_positions_shifted(pieces):
    mlm = mlm_rows(
        Texts.of([np.arange(30, 40)]),
        np.array([1]),
        np.array([2]),
        pieces=pieces,
        masker=Masker(pieces),
        mask_rate=0.3,
        keys=[key_digest(5)],
    )
    placed = PlacedRows(pairs(pieces), np.array([6, 9]), np.array([40, 50]), ("a", "b", "c", "d", "e", "f"))
    batch = collate([placed, PlacedRows(mlm, np.array([3]), np.array([44]), ("g",))])
    assert batch.tokens == 30
    assert batch.sequences == 7
    assert batch.cu_seqlens.tolist() == [0, 3, 6, 9, 12, 15, 18, 30]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.pair_index.tolist() == [40, 40, 41, 41, 50, 50, -1]
    assert batch.pair_key.tolist() == [70, 70, 71, 71, 72, 72, -1]
    assert batch.row_id.tolist() == [6, 6, 6, 6, 9, 9, 3]
    assert batch.sequence_objective.tolist() == [OBJECTIVE_CODE["contrastive"]] * 6 + [OBJECTIVE_CODE["mlm"]]
    assert batch.prediction_objective.tolist() == [OBJECTIVE_CODE["mlm"]] * 3
    assert batch.predict_positions.min() >= 18
    restored = batch.input_ids.clone()
    restored[batch.predict_positions] = batch.labels
    assert restored[18:].tolist() == [2, *range(30, 40), 3]
    assert batch.provenance == ("a", "b", "c", "d", "e", "f", "g")


def test_no_rows_give_an_empty_batch_of_the_same_types(pieces):
    full = collate([PlacedRows(pairs(pieces), np.array([0, 1]), np.array([0, 2]))])
    empty = collate([])
    assert empty.tokens == empty.sequences == 0
    assert empty.cu_seqlens.tolist() == [0]
    for name, tensor in vars(empty).items():
        if name != "provenance":
            assert tensor.dtype == getattr(full, name).dtype, name

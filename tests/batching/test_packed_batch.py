import numpy as np
import torch

from xlm.batching.collate import PlacedRows, collate
from xlm.batching.contrastive import contrastive_rows
from xlm.batching.texts import Texts


def test_a_batch_moves_whole(pieces):
    rows = contrastive_rows(
        Texts.of([np.array([10])]), Texts.of([np.array([20])]), np.array([1]), np.array([[0, 1]]), np.array([5]), pieces=pieces
    )
    batch = collate([PlacedRows(rows, np.array([0]), np.array([0]), ("a", "b"))])
    moved = batch.to("meta")
    assert moved.provenance == ("a", "b")
    assert (moved.tokens, moved.sequences) == (batch.tokens, batch.sequences) == (6, 2)
    assert all(tensor.device == torch.device("meta") for name, tensor in vars(moved).items() if name != "provenance")

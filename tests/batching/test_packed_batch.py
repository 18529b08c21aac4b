import numpy as np
import torch

from xlm.batching.collate import BatchRow, collate
from xlm.batching.contrastive import contrastive_row


def test_a_batch_moves_whole(pieces):
    batch = collate([BatchRow(0, contrastive_row([(np.array([10]), np.array([20]))], [1], (0, 1), pieces=pieces), 0, ("a", "b"))])
    moved = batch.to("meta")
    assert moved.provenance == ("a", "b")
    assert moved.tokens == batch.tokens
    assert moved.sequences == batch.sequences
    assert all(tensor.device == torch.device("meta") for name, tensor in vars(moved).items() if name != "provenance")

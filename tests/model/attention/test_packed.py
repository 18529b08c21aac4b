"""What attention keeps for backward: the projected tokens once, its output, a number a query, short sequences' weights."""

import pytest
import torch

from tests.model.attention.examples import boundaries
from xlm.model.attention import attend, plan_attention
from xlm.model.dropout import Dropout, DropoutKey

HEADS, HEAD_WIDTH = 4, 16


def kept_bytes(lengths, *, dtype=torch.float32, reach=None, dropout=None):
    """Return the bytes that the graph holds, by storage, and the bytes of the projected tokens and the output."""
    qkv = torch.randn(sum(lengths), 3 * HEADS * HEAD_WIDTH, dtype=dtype, requires_grad=True)
    plan = plan_attention(boundaries(lengths), HEADS, reach=reach)
    storages = {}

    def keep(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = attend(qkv, plan, dropout=dropout)
    return sum(storages.values()), qkv.nbytes, output.nbytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reach", [None, 64])
def test_no_weights_of_long_sequences_nor_a_second_copy_of_the_projections(dtype, reach):
    lengths = [5, 9, 40, 40, 128, 128, 600, 2048]
    kept, projected, output = kept_bytes(lengths, dtype=dtype, reach=reach)
    row = HEAD_WIDTH * dtype.itemsize  # behind the last token, for padded slots
    short = HEADS * sum(length**2 for length in lengths if length <= HEAD_WIDTH) * dtype.itemsize  # weights that are kept
    assert projected <= kept <= projected + output + row + 4 * HEADS * sum(lengths) + short


def test_dropout_keeps_its_seed_and_not_its_masks():
    drop = Dropout(0.1, DropoutKey())
    kept, projected, _ = kept_bytes([5, 40, 600], dropout=drop)
    assert kept == projected


def test_inference_keeps_nothing():
    qkv = torch.randn(70, 3 * HEADS * HEAD_WIDTH)
    assert attend(qkv, plan_attention(boundaries([70]), HEADS)).grad_fn is None

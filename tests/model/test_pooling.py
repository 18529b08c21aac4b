"""Pooling against a loop."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from xlm.model.pooling import mean_pool, pool, pooled_tokens


@given(lengths=st.lists(st.integers(0, 9), max_size=8))
@settings(max_examples=60, deadline=None)
def test_equals_a_loop_over_sequences(lengths):
    hidden = torch.randn(sum(lengths), 5, generator=torch.Generator().manual_seed(len(lengths)))
    pooled = mean_pool(hidden, torch.tensor([0, *lengths]).cumsum(0).int())
    assert pooled.shape == (len(lengths), 5)
    for part, vector in zip(hidden.split(lengths) if lengths else [], pooled, strict=True):
        inside = part[1:-1] if len(part) > 2 else part
        expected = inside.mean(0) if len(inside) else torch.zeros(5)
        torch.testing.assert_close(vector, expected, atol=1e-6, rtol=1e-5)


def test_gradient_reaches_inner_tokens_equally_and_the_ends_not_at_all():
    hidden = torch.ones(6, 2, requires_grad=True)
    mean_pool(hidden, torch.tensor([0, 4, 6]).int()).sum().backward()
    expected = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.5, 0.5])
    torch.testing.assert_close(hidden.grad, expected[:, None].expand(6, 2))


def test_low_precision_is_summed_in_fp32():
    # 1 + 1/512 is lost in bf16 sums of this length.
    hidden = torch.full((1026, 1), 1.0 + 2**-7, dtype=torch.bfloat16)
    pooled = mean_pool(hidden, torch.tensor([0, 1026]).int())
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, torch.full((1, 1), 1.0 + 2**-7))


@given(sequences=st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8), pooling=st.sampled_from(["mean", "first"]))
@settings(max_examples=60, deadline=None)
def test_chosen_sequences_are_pooled_from_the_tokens_that_are_asked_for(sequences, pooling):
    lengths = torch.tensor([length for length, _ in sequences], dtype=torch.int64)
    chosen = torch.tensor([taken for _, taken in sequences], dtype=torch.bool)
    bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
    hidden = torch.randn(int(bounds[-1]), 5, generator=torch.Generator().manual_seed(len(sequences)))
    found = pool(hidden[pooled_tokens(bounds, chosen, pooling)], lengths[chosen], pooling)
    parts = [part for part, taken in zip(hidden.split(lengths.tolist()), chosen.tolist(), strict=True) if taken] if len(lengths) else []
    expected = [part[0] if pooling == "first" else (part[1:-1] if len(part) > 2 else part).mean(0) for part in parts]
    torch.testing.assert_close(found, torch.stack(expected) if expected else torch.zeros(0, 5))


class Operations(TorchDispatchMode):
    """The names of all operations that run inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_nothing_that_adds_in_any_order_on_a_gpu_is_called():
    hidden = torch.randn(9, 4, requires_grad=True)
    with Operations() as called:
        mean_pool(hidden, torch.tensor([0, 4, 9]).int()).sum().backward()
    assert len(called.names) > 3
    assert not {name for name in called.names if name.startswith(("index_add", "scatter_add", "index_put", "put_", "_index_put"))}

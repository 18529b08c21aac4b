"""Torch's fused attention on length groups against the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.attention.examples import as_mask, boundaries, outputs_and_gradients, random_qkv
from xlm.model.attention import plan_attention, reference_attention
from xlm.model.attention.padded import attend_padded


@given(sequences=st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=10), reach=st.none() | st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_fp32_equals_the_reference(sequences, reach):
    lengths, causal = [length for length, _ in sequences], as_mask([one_sided for _, one_sided in sequences])
    qkv, cu_seqlens = random_qkv(lengths, 16), boundaries(lengths)
    plan = plan_attention(cu_seqlens, 2, causal=causal, reach=reach)
    ours = outputs_and_gradients(lambda x: attend_padded(x, plan, 0.3) + 0.0 * x[:, :16], qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, cu_seqlens, 2, causal=causal, reach=reach, scale=0.3), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_bf16_is_as_close_as_bf16_allows(dtype):
    lengths = list(range(1, 50))
    qkv = random_qkv(lengths, 16, dtype)
    exact = reference_attention(qkv.detach().float(), boundaries(lengths), 2, scale=0.3)
    output = attend_padded(qkv, plan_attention(boundaries(lengths), 2), 0.3)
    assert (output.float() - exact).norm() / exact.norm() < 0.01

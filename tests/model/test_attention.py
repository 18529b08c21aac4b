"""Grouped attention against a plain masked softmax, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.model import attention
from xlm.model.attention import attend, plan_attention, reference_attention


def boundaries(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0).to(torch.int32)


def random_qkv(lengths, width, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), 3 * width, generator=generator).to(dtype).requires_grad_()


def outputs_and_gradients(function, qkv):
    generator = torch.Generator().manual_seed(1)
    output = function(qkv)
    direction = torch.randn(output.shape, generator=generator).to(output.dtype)
    (gradient,) = torch.autograd.grad(output, qkv, direction)
    return output.detach(), gradient


BACKENDS = [attend, attention._attend_fused]


@pytest.mark.parametrize("backend", BACKENDS)
@given(lengths=st.lists(st.integers(0, 24), max_size=12), heads=st.sampled_from([1, 2, 4]))
@settings(max_examples=40, deadline=None)
def test_fp32_equals_the_reference(backend, lengths, heads):
    qkv = random_qkv(lengths, 16)
    cu_seqlens = boundaries(lengths)
    plan = plan_attention(cu_seqlens, heads)
    ours = outputs_and_gradients(lambda x: backend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, cu_seqlens, heads), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_length_from_one_to_the_longest(backend):
    lengths = list(range(1, 70))
    qkv = random_qkv(lengths, 32)
    plan = plan_attention(boundaries(lengths), 2)
    ours = outputs_and_gradients(lambda x: backend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 2), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bf16_is_as_close_as_bf16_allows(backend):
    lengths = [1, 2, 7, 7, 7, 19, 40, 3]
    low = random_qkv(lengths, 64, torch.bfloat16)
    plan = plan_attention(boundaries(lengths), 4)
    ours = outputs_and_gradients(lambda x: backend(x, plan), low)
    exact = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 4), low.detach().float().requires_grad_())
    for mine, true in zip(ours, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        assert (mine.float() - true).norm() / true.norm() < 0.01


def test_autocast_outside_changes_nothing_inside():
    lengths = [3, 9, 4]
    qkv = random_qkv(lengths, 16)
    plan = plan_attention(boundaries(lengths), 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, gradient = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    assert torch.equal(output, plain[0])
    assert torch.equal(gradient, plain[1])


def test_gradient_is_the_derivative():
    lengths = [4, 1, 6, 5]
    plan = plan_attention(boundaries(lengths), 2)
    qkv = random_qkv(lengths, 4).detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attend(x, plan), (qkv,))
    keep = tuple(
        torch.randint(0, 2, (b.count * 2, b.length, b.length), generator=torch.Generator().manual_seed(b.length)).double() * 2
        for b in plan.blocks
    )
    assert torch.autograd.gradcheck(lambda x: attend(x, plan, keep), (qkv,))


def test_a_sequence_never_sees_its_neighbours():
    lengths = [5, 8, 5]
    qkv = random_qkv(lengths, 8).detach()
    plan = plan_attention(boundaries(lengths), 2)
    changed = qkv.clone()
    changed[5:13] += 100.0
    before, after = attend(qkv, plan), attend(changed, plan)
    assert torch.equal(before[:5], after[:5])
    assert torch.equal(before[13:], after[13:])
    assert not torch.equal(before[5:13], after[5:13])


def test_plan_keeps_padding_small_and_covers_every_token_once():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(5, 41, (300,), generator=generator).tolist()
    plan = plan_attention(boundaries(lengths), 4)
    slots = sum(block.count * block.length for block in plan.blocks)
    assert slots <= sum(lengths) / attention.GROUP_LENGTH_RATIO
    assert plan.longest == max(lengths)
    assert torch.equal(plan.gather_qkv[plan.return_qkv], torch.arange(sum(lengths) * 12))
    assert torch.equal(plan.gather_output[plan.return_output], torch.arange(sum(lengths) * 4))


def test_equal_lengths_need_no_mask():
    plan = plan_attention(boundaries([16] * 8), 4)
    assert [block.real for block in plan.blocks] == [None]


def test_blocks_are_cut_so_that_scores_stay_small(monkeypatch):
    monkeypatch.setattr(attention, "BLOCK_SCORES", 2 * 4 * 16 * 16)
    lengths = [16] * 7
    plan = plan_attention(boundaries(lengths), 4)
    assert [block.count for block in plan.blocks] == [1, 2, 2, 2]
    qkv = random_qkv(lengths, 16)
    torch.testing.assert_close(attend(qkv, plan), reference_attention(qkv, boundaries(lengths), 4))


def test_no_tokens_at_all():
    for lengths in ([], [0], [0, 0]):
        plan = plan_attention(boundaries(lengths), 2)
        output, gradient = outputs_and_gradients(lambda x, plan=plan: attend(x, plan), random_qkv([], 8))
        assert output.shape == (0, 8)
        assert gradient.shape == (0, 24)

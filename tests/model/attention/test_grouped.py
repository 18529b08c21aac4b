"""Grouped attention against a plain masked softmax, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.model.attention import attend, grouped, plan, plan_attention, reference_attention


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


BACKENDS = [attend, lambda qkv, p: grouped.attend_fused(qkv, p, (qkv.shape[1] // (3 * p.heads)) ** -0.5)]


@pytest.mark.parametrize("backend", BACKENDS)
@given(lengths=st.lists(st.integers(0, 24), max_size=12), heads=st.sampled_from([1, 2, 4]))
@settings(max_examples=40, deadline=None)
def test_fp32_equals_the_reference(backend, lengths, heads):
    qkv = random_qkv(lengths, 16)
    cu_seqlens = boundaries(lengths)
    p = plan_attention(cu_seqlens, heads)
    ours = outputs_and_gradients(lambda x: backend(x, p), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, cu_seqlens, heads), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_length_from_one_to_the_longest(backend):
    lengths = list(range(1, 70))
    qkv = random_qkv(lengths, 32)
    p = plan_attention(boundaries(lengths), 2)
    ours = outputs_and_gradients(lambda x: backend(x, p), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 2), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bf16_is_as_close_as_bf16_allows(backend):
    lengths = [1, 2, 7, 7, 7, 19, 40, 3]
    low = random_qkv(lengths, 64, torch.bfloat16)
    p = plan_attention(boundaries(lengths), 4)
    ours = outputs_and_gradients(lambda x: backend(x, p), low)
    exact = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 4), low.detach().float().requires_grad_())
    for mine, true in zip(ours, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        assert (mine.float() - true).norm() / true.norm() < 0.01


def test_autocast_outside_changes_nothing_inside():
    lengths = [3, 9, 4]
    qkv = random_qkv(lengths, 16)
    p = plan_attention(boundaries(lengths), 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, gradient = outputs_and_gradients(lambda x: attend(x, p), qkv)
    plain = outputs_and_gradients(lambda x: attend(x, p), qkv)
    assert torch.equal(output, plain[0])
    assert torch.equal(gradient, plain[1])


def test_gradient_is_the_derivative():
    lengths = [4, 1, 6, 5]
    p = plan_attention(boundaries(lengths), 2)
    qkv = random_qkv(lengths, 4).detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attend(x, p), (qkv,))


def test_a_sequence_never_sees_its_neighbours():
    lengths = [5, 8, 5]
    qkv = random_qkv(lengths, 8).detach()
    p = plan_attention(boundaries(lengths), 2)
    changed = qkv.clone()
    changed[5:13] += 100.0
    before, after = attend(qkv, p), attend(changed, p)
    assert torch.equal(before[:5], after[:5])
    assert torch.equal(before[13:], after[13:])
    assert not torch.equal(before[5:13], after[5:13])


def test_plan_keeps_padding_small_and_covers_every_token_once():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(5, 41, (300,), generator=generator).tolist()
    p = plan_attention(boundaries(lengths), 4)
    slots = sum(block.count * block.length for block in p.blocks)
    assert slots <= sum(lengths) / 0.8
    assert p.longest == max(lengths)
    assert torch.equal(p.gather_qkv[p.return_qkv], torch.arange(sum(lengths) * 12))
    assert torch.equal(p.gather_output[p.return_output], torch.arange(sum(lengths) * 4))


def test_equal_lengths_need_no_mask():
    p = plan_attention(boundaries([16] * 8), 4)
    assert [block.real for block in p.blocks] == [None]


def test_blocks_are_cut_so_that_scores_stay_small(monkeypatch):
    monkeypatch.setattr(plan, "BLOCK_SCORES", 2 * 4 * 16 * 16)
    lengths = [16] * 7
    p = plan_attention(boundaries(lengths), 4)
    assert [block.count for block in p.blocks] == [1, 2, 2, 2]
    qkv = random_qkv(lengths, 16)
    torch.testing.assert_close(attend(qkv, p), reference_attention(qkv, boundaries(lengths), 4))


def test_no_tokens_at_all():
    for lengths in ([], [0], [0, 0]):
        p = plan_attention(boundaries(lengths), 2)
        output, gradient = outputs_and_gradients(lambda x, p=p: attend(x, p), random_qkv([], 8))
        assert output.shape == (0, 8)
        assert gradient.shape == (0, 24)

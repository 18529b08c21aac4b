"""Every way through attention against a plain masked softmax, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.attention.examples import WAYS, as_mask, boundaries, force, outputs_and_gradients, random_qkv
from xlm.model.attention import attend, plan_attention, reference_attention


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    force(request.param, monkeypatch)
    return request.param


sequences = st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=10)
reaches = st.none() | st.integers(0, 12)


@pytest.mark.parametrize("name", WAYS)
@given(sequences=sequences, heads=st.sampled_from([1, 2, 3]), head_width=st.sampled_from([1, 5, 8]), reach=reaches)
@settings(max_examples=40, deadline=None)
def test_fp32_equals_the_reference(name, sequences, heads, head_width, reach):
    lengths, causal = [length for length, _ in sequences], as_mask([one_sided for _, one_sided in sequences])
    qkv = random_qkv(lengths, heads * head_width)
    cu_seqlens = boundaries(lengths)
    with pytest.MonkeyPatch.context() as patch:
        force(name, patch)
        plan = plan_attention(cu_seqlens, heads, causal=causal, reach=reach)
        ours = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, cu_seqlens, heads, causal=causal, reach=reach), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("reach", [None, 6])
def test_every_length_from_one_to_the_longest(way, reach):
    lengths = list(range(1, 60))
    causal = as_mask([length % 3 == 0 for length in lengths])
    qkv = random_qkv(lengths, 32)
    plan = plan_attention(boundaries(lengths), 2, causal=causal, reach=reach)
    ours = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 2, causal=causal, reach=reach), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reach", [None, 5])
def test_bf16_is_as_close_as_bf16_allows(way, reach):
    lengths = [1, 2, 7, 7, 7, 19, 40, 3, 100]
    causal = as_mask([length in (7, 100) for length in lengths])
    low = random_qkv(lengths, 64, torch.bfloat16)
    plan = plan_attention(boundaries(lengths), 4, causal=causal, reach=reach)
    ours = outputs_and_gradients(lambda x: attend(x, plan), low)
    exact_input = low.detach().float().requires_grad_()
    exact = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 4, causal=causal, reach=reach), exact_input)
    for mine, true in zip(ours, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        assert (mine.float() - true).norm() / true.norm() < 0.01


@pytest.mark.parametrize(("causal", "reach"), [(False, None), (True, None), (False, 64), (True, 100)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_sequences_as_they_are_chosen(dtype, causal, reach):
    lengths = [300, 3, 700, 300, 300]
    mask = as_mask([causal] * 5)
    qkv = random_qkv(lengths, 32, dtype)
    plan = plan_attention(boundaries(lengths), 2, causal=mask, reach=reach)
    exact_input = qkv.detach().float().requires_grad_()
    ours = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 2, causal=mask, reach=reach), exact_input)
    for mine, true in zip(ours, plain, strict=True):
        assert (mine.float() - true).norm() / true.norm() < (1e-5 if dtype == torch.float32 else 0.01)


def test_the_scale_is_the_one_given(way):
    lengths = [12, 5, 30]
    qkv = random_qkv(lengths, 16)
    plan = plan_attention(boundaries(lengths), 2)
    ours = outputs_and_gradients(lambda x: attend(x, plan, scale=1.7), qkv)
    plain = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 2, scale=1.7), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours[0], attend(qkv, plan))


def test_gradient_is_the_derivative(way):
    lengths = [3, 1, 6]
    qkv = random_qkv(lengths, 4).detach().double().requires_grad_()
    for causal, reach in ((False, None), (True, None), (False, 2), (True, 2)):
        plan = plan_attention(boundaries(lengths), 2, causal=as_mask([causal] * 3), reach=reach)
        assert torch.autograd.gradcheck(lambda x, plan=plan: attend(x, plan), (qkv,))


def test_autocast_outside_changes_nothing_inside(way):
    lengths = [3, 9, 4]
    qkv = random_qkv(lengths, 16)
    plan = plan_attention(boundaries(lengths), 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, gradient = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    plain = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    assert torch.equal(output, plain[0])
    assert torch.equal(gradient, plain[1])


@pytest.mark.parametrize("reach", [None, 3])
def test_the_same_bits_twice_and_without_a_graph(way, reach):
    lengths = [3, 19, 40, 3, 100, 3]
    qkv = random_qkv(lengths, 16)
    plan = plan_attention(boundaries(lengths), 2, reach=reach)
    first = outputs_and_gradients(lambda x: attend(x, plan), qkv)
    again = outputs_and_gradients(lambda x: attend(x, plan_attention(boundaries(lengths), 2, reach=reach)), qkv)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(attend(qkv, plan), first[0])


def test_a_sequence_never_sees_its_neighbours(way):
    lengths = [5, 18, 5]
    qkv = random_qkv(lengths, 8).detach()
    plan = plan_attention(boundaries(lengths), 2)
    changed = qkv.clone()
    changed[5:23] += 100.0
    before, after = attend(qkv, plan), attend(changed, plan)
    assert torch.equal(before[:5], after[:5])
    assert torch.equal(before[23:], after[23:])
    assert not torch.equal(before[5:23], after[5:23])


def test_projections_that_are_views_of_something_larger(way):
    lengths = [5, 18, 6]
    whole = random_qkv(lengths, 16)
    plan = plan_attention(boundaries(lengths), 2)
    ours = outputs_and_gradients(lambda x: attend(x[:, 12:36], plan), whole)
    plain = outputs_and_gradients(lambda x: attend(x[:, 12:36].contiguous(), plan), whole)
    assert all(torch.equal(one, other) for one, other in zip(ours, plain, strict=True))


def test_a_gradient_that_is_one_number_for_all(way):
    lengths = [5, 18, 6]
    qkv = random_qkv(lengths, 16)
    (ours,) = torch.autograd.grad(attend(qkv, plan_attention(boundaries(lengths), 2)).sum(), qkv)
    (plain,) = torch.autograd.grad(reference_attention(qkv, boundaries(lengths), 2).sum(), qkv)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_tokens_at_all_are_still_part_of_the_graph(way, lengths):
    plan = plan_attention(boundaries(lengths), 2, causal=as_mask([True] * len(lengths)), reach=3)
    output, gradient = outputs_and_gradients(lambda x: attend(x, plan), random_qkv([], 8))
    assert output.shape == (0, 8)
    assert gradient.shape == (0, 24)

"""Chunked cross-entropy against torch's own over all logits."""

import weakref

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.model import cross_entropy
from xlm.model.cross_entropy import chunked_cross_entropy


def inputs(positions, vocabulary, width=12, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(positions, width, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator).to(dtype).requires_grad_()
    bias = torch.randn(vocabulary, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(0, vocabulary, (positions,), generator=generator)
    return hidden, weight, bias, labels


def plain(hidden, weight, bias, labels):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, reduction="none")


def small_chunks(monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK_LOGITS", 1)
    monkeypatch.setattr(cross_entropy, "MIN_CHUNK_POSITIONS", 7)


@pytest.mark.parametrize("weights", ["equal", "different", "zero"])
@given(positions=st.integers(1, 40), vocabulary=st.integers(2, 50), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_loss_and_gradients_equal_the_plain_computation(weights, positions, vocabulary, seed):
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_chunks(monkeypatch)
        hidden, weight, bias, labels = inputs(positions, vocabulary, seed=seed)
        factor = {"equal": torch.full((positions,), 0.37), "different": torch.linspace(-1, 2, positions), "zero": torch.zeros(positions)}[
            weights
        ]
        ours = chunked_cross_entropy(hidden, weight, bias, labels)
        true = plain(hidden, weight, bias, labels)
        torch.testing.assert_close(ours, true, rtol=1e-5, atol=1e-5)
        mine = torch.autograd.grad((ours * factor).sum(), (hidden, weight, bias))
        theirs = torch.autograd.grad((true * factor).sum(), (hidden, weight, bias))
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_no_position_gives_zero_gradients():
    hidden, weight, bias, labels = inputs(0, 9)
    losses = chunked_cross_entropy(hidden, weight, bias, labels)
    assert losses.shape == (0,)
    for gradient, parameter in zip(torch.autograd.grad(losses.sum(), (hidden, weight, bias)), (hidden, weight, bias), strict=True):
        assert torch.equal(gradient, torch.zeros_like(parameter))


def test_bf16_gradients_are_close_and_keep_their_type(monkeypatch):
    small_chunks(monkeypatch)
    hidden, weight, bias, labels = inputs(30, 200, width=32, dtype=torch.bfloat16)
    ours = chunked_cross_entropy(hidden, weight, bias, labels)
    exact = [tensor.detach().float().requires_grad_() for tensor in (hidden, weight, bias)]
    true = plain(*exact, labels)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, true, rtol=0.01, atol=0.1)
    for mine, theirs in zip(torch.autograd.grad(ours.mean(), (hidden, weight, bias)), torch.autograd.grad(true.mean(), exact), strict=True):
        assert mine.dtype == torch.bfloat16
        assert (mine.float() - theirs).norm() / theirs.norm() < 0.02


def test_under_autocast_the_products_run_in_its_type_and_parameters_get_fp32_gradients():
    hidden, weight, bias, labels = inputs(10, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = chunked_cross_entropy(hidden, weight, bias, labels)
    losses.sum().backward()
    assert weight.grad.dtype == hidden.grad.dtype == torch.float32
    true = plain(hidden, weight, bias, labels)
    torch.testing.assert_close(losses, true, rtol=0.02, atol=0.1)
    assert not torch.equal(losses, true)


def test_frozen_table_and_evaluation():
    hidden, weight, bias, labels = inputs(5, 8)
    weight.requires_grad_(False)
    bias.requires_grad_(False)
    (gradient,) = torch.autograd.grad(chunked_cross_entropy(hidden, weight, bias, labels).sum(), hidden)
    (true,) = torch.autograd.grad(plain(hidden, weight, bias, labels).sum(), hidden)
    torch.testing.assert_close(gradient, true)
    with torch.no_grad():
        torch.testing.assert_close(chunked_cross_entropy(hidden, weight, bias, labels), plain(hidden, weight, bias, labels))


def test_a_label_that_is_all_but_impossible_has_a_finite_loss():
    hidden = torch.tensor([[1.0]], requires_grad=True)
    weight = torch.tensor([[0.0], [500.0]], requires_grad=True)
    losses = chunked_cross_entropy(hidden, weight, torch.zeros(2, requires_grad=True), torch.tensor([0]))
    torch.testing.assert_close(losses, torch.tensor([500.0]))


def test_never_holds_all_logits(monkeypatch):
    """Logits are made chunk by chunk, and none outlives its chunk."""
    small_chunks(monkeypatch)
    sizes, alive = [], []
    original = cross_entropy._losses_and_gradient

    def watched(*arguments):
        losses, d_logits = original(*arguments)
        sizes.append(d_logits.numel())
        alive.append(weakref.ref(d_logits))
        return losses, d_logits

    monkeypatch.setattr(cross_entropy, "_losses_and_gradient", watched)
    hidden, weight, bias, labels = inputs(50, 100)
    losses = chunked_cross_entropy(hidden, weight, bias, labels)
    assert max(sizes) == 7 * 100
    assert sum(sizes) == 50 * 100
    assert all(reference() is None for reference in alive)
    losses.sum().backward()

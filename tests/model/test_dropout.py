"""Dropout by key."""

import copy

import pytest
import torch

from xlm.model.dropout import Dropout, DropoutKey


def test_masks_follow_the_key_and_their_number():
    key = DropoutKey()
    dropout = Dropout(0.5, key)
    ones = torch.ones(1000)
    key.set("run", 7)
    first, second = dropout(ones), dropout(ones)
    key.set("run", 7)
    assert torch.equal(first, dropout(ones))
    assert torch.equal(second, dropout(ones))
    assert not torch.equal(first, second)
    key.set("run", 8)
    assert not torch.equal(first, dropout(ones))


def test_the_global_random_state_neither_decides_nor_moves():
    key = DropoutKey()
    dropout = Dropout(0.5, key)
    masks = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        key.set("run", 7)
        masks.append(dropout(torch.ones(1000)))
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*masks)


def test_modules_that_share_a_key_draw_one_after_the_other():
    key = DropoutKey()
    one, two = Dropout(0.5, key), Dropout(0.5, key)
    key.set(1)
    first, second = one(torch.ones(1000)), two(torch.ones(1000))
    key.set(1)
    assert torch.equal(two(torch.ones(1000)), first), "the place in the order decides, not the module"
    assert torch.equal(one(torch.ones(1000)), second)


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.75])
def test_keeps_the_mean_and_drops_by_the_rate(rate):
    dropped = Dropout(rate, DropoutKey())(torch.ones(100_000))
    assert dropped.unique().tolist() == [0.0, pytest.approx(1 / (1 - rate))]
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=0.006)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.025)


def test_does_nothing_in_evaluation_or_at_rate_zero():
    ones = torch.ones(10)
    assert Dropout(0.5, DropoutKey()).eval()(ones) is ones
    assert Dropout(0.0, DropoutKey())(ones) is ones


def test_low_precision_drops_the_same_numbers():
    key = DropoutKey()
    dropout = Dropout(0.5, key)
    key.set(1)
    single = dropout(torch.ones(1000))
    key.set(1)
    half = dropout(torch.ones(1000, dtype=torch.bfloat16))
    assert half.dtype == torch.bfloat16
    assert torch.equal(single == 0, half == 0)


def test_the_gradient_passes_where_the_number_did():
    values = torch.ones(1000, requires_grad=True)
    dropped = Dropout(0.5, DropoutKey())(values)
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped.detach())


def test_copies_with_its_model():
    module = copy.deepcopy(Dropout(0.5, DropoutKey()))
    assert module(torch.ones(8)).shape == (8,)

"""Dropout by key."""

import copy

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


def test_keeps_the_mean_and_drops_by_the_rate():
    dropped = Dropout(0.2, DropoutKey())(torch.ones(100_000))
    assert set(dropped.unique().tolist()) == {0.0, 1.25}
    assert abs(float(dropped.mean()) - 1.0) < 0.01


def test_does_nothing_in_evaluation_or_at_rate_zero():
    ones = torch.ones(10)
    assert Dropout(0.5, DropoutKey()).eval()(ones) is ones
    assert Dropout(0.0, DropoutKey())(ones) is ones


def test_copies_with_its_model():
    module = copy.deepcopy(Dropout(0.5, DropoutKey()))
    assert module(torch.ones(8)).shape == (8,)

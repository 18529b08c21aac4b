"""The queue against a list."""

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.training.contrastive import Pairs
from xlm.training.pair_queue import PairQueue


def numbered(first, count):
    numbers = torch.arange(first, first + count)
    vectors = numbers[:, None].float().expand(count, 2)
    return Pairs(vectors, -vectors, numbers, numbers, torch.stack([numbers + 1000, numbers + 2000], dim=1))


def rows(pairs):
    columns = (pairs.sources[:, 0], pairs.targets[:, 1], pairs.keys, pairs.texts[:, 0], pairs.texts[:, 1])
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@given(capacity=st.integers(1, 9), counts=st.lists(st.integers(0, 12), max_size=6))
@settings(max_examples=100, deadline=None)
def test_holds_the_last_pairs_that_were_pushed(capacity, counts):
    queue, expected, pushed = PairQueue(capacity, 2, torch.device("cpu")), deque(maxlen=capacity), 0
    for count in counts:
        queue.push(numbered(pushed, count))
        expected.extend(range(pushed, pushed + count))
        pushed += count
        assert len(queue) == len(expected)
        assert rows(queue.pairs()) == [(n, -n, n, n + 1000, n + 2000) for n in expected]


def test_a_loaded_queue_goes_on_alike_place_by_place():
    first, second = (PairQueue(5, 2, torch.device("cpu")) for _ in range(2))
    first.push(numbered(0, 7))
    second.load({name: tensor.clone() for name, tensor in first.state().items()})
    for queue in (first, second):
        queue.push(numbered(7, 2))
    for name, tensor in first.state().items():
        assert torch.equal(tensor, second.state()[name])


def test_a_queue_of_another_size_is_refused():
    with pytest.raises(UserError, match="a queue of 5 pairs of width 2, the recipe asks for 6 of width 2"):
        PairQueue(6, 2, torch.device("cpu")).load(PairQueue(5, 2, torch.device("cpu")).state())


def test_vectors_in_the_queue_have_no_gradient():
    queue = PairQueue(3, 2, torch.device("cpu"))
    pairs = numbered(0, 2)
    queue.push(pairs.with_vectors(pairs.sources.clone().requires_grad_(), pairs.targets.clone().requires_grad_()))
    assert not queue.pairs().sources.requires_grad

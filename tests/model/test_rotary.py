"""Rotary positions: turned by hand, and relative by nature."""

import math

import pytest
import torch

from xlm.model.rotary import rotate, rotation

HEADS, HEAD_WIDTH = 2, 6


def turned(values, positions, base=100.0):
    return rotate(values, rotation(positions, HEAD_WIDTH, base), HEADS)


def test_each_pair_of_numbers_turns_by_its_own_angle():
    positions = torch.tensor([0, 3, 11])
    values = torch.randn(3, 3 * HEADS * HEAD_WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    result = turned(values, positions).view(3, 3, HEADS, HEAD_WIDTH)
    given = values.view(3, 3, HEADS, HEAD_WIDTH)
    half = HEAD_WIDTH // 2
    for token, position in enumerate(positions.tolist()):
        for part in (0, 1):  # queries and keys
            for head in range(HEADS):
                for i in range(half):
                    angle = position / 100.0 ** (2 * i / HEAD_WIDTH)
                    # A complex number times e^(i angle).
                    number = complex(given[token, part, head, i], given[token, part, head, i + half])
                    expected = number * complex(math.cos(angle), math.sin(angle))
                    assert float(result[token, part, head, i]) == pytest.approx(expected.real, abs=1e-5)
                    assert float(result[token, part, head, i + half]) == pytest.approx(expected.imag, abs=1e-5)
    assert torch.equal(result[:, 2], given[:, 2]), "values stay"
    assert torch.equal(result[0], given[0]), "position 0 does not turn"


def test_scores_depend_on_distances_alone():
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, HEADS, HEAD_WIDTH, generator=generator)

    def score(query_position, key_position):
        qkv = torch.stack([torch.stack([query, key, key])] * 2).view(2, -1)
        parts = turned(qkv, torch.tensor([query_position, key_position])).view(2, 3, HEADS, HEAD_WIDTH)
        return (parts[0, 0] * parts[1, 1]).sum(-1)

    for distance in (-7, 0, 1, 30):
        torch.testing.assert_close(score(40, 40 - distance), score(90, 90 - distance), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(score(40, 39), score(40, 38))


def test_the_base_sets_the_slowest_turn():
    position = torch.tensor([1])
    fast, slow = rotation(position, 64, 10_000.0), rotation(position, 64, 160_000.0)
    assert torch.equal(fast.sines[0, 0, 0], slow.sines[0, 0, 0])
    ratio = float(fast.sines[0, 0, -1] / slow.sines[0, 0, -1])
    assert ratio == pytest.approx(16.0 ** (62 / 64), rel=1e-3)


def test_low_precision_is_turned_in_fp32_and_gradients_turn_back():
    values = torch.randn(4, 3 * HEADS * HEAD_WIDTH, generator=torch.Generator().manual_seed(2))
    positions = torch.arange(4) * 100
    half = turned(values.bfloat16(), positions)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), turned(values.bfloat16().float(), positions).bfloat16().float(), atol=0, rtol=0)
    values.requires_grad_(True)
    given = torch.randn(4, 3 * HEADS * HEAD_WIDTH, generator=torch.Generator().manual_seed(3))
    turned(values, positions).backward(given)
    torch.testing.assert_close(turned(values.grad, positions), given, atol=1e-5, rtol=1e-5)

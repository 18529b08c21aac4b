"""Weight dropout: the masks of forward come back in backward, follow the key, and leave the mean alone."""

import pytest
import torch

from tests.model.attention.examples import as_mask, boundaries, force, outputs_and_gradients, random_qkv
from xlm.model.attention import attend, plan_attention
from xlm.model.dropout import Dropout, DropoutKey


def module(rate=0.5, key=(1, 2)):
    keys = DropoutKey()
    keys.set(*key)
    return Dropout(rate, keys)


@pytest.mark.parametrize("way", ["groups", "tiles", "fused"])
def test_gradient_is_the_derivative_of_the_dropped_attention(way, monkeypatch):
    force(way, monkeypatch)
    lengths = [4, 1, 6, 11]
    plan = plan_attention(boundaries(lengths), 2, causal=as_mask([False, True, True, False]))
    qkv = random_qkv(lengths, 4).detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attend(x, plan, dropout=module()), (qkv,))


@pytest.mark.parametrize("way", ["groups", "tiles"])
def test_each_weight_is_dropped_by_itself_and_the_rest_is_scaled(way, monkeypatch):
    force(way, monkeypatch)
    length, rate = 32, 0.25
    # Keys of zero make all weights 1 / length; a value that is one-hot by place reads the weights off.
    qkv = torch.zeros(length, 3 * length)
    qkv[:, 2 * length :] = torch.eye(length)
    weights = attend(qkv, plan_attention(boundaries([length]), 1), dropout=module(rate)) * length
    dropped = weights == 0
    assert torch.allclose(weights[~dropped], torch.tensor(1 / (1 - rate)))
    assert abs(float(dropped.float().mean()) - rate) < 0.05
    assert len({tuple(row.tolist()) for row in dropped}) == length


def test_masks_follow_the_key_and_every_call_has_its_own():
    lengths = [20, 9]
    qkv, plan = random_qkv(lengths, 16), plan_attention(boundaries(lengths), 2)
    drop = module()
    first, second = (outputs_and_gradients(lambda x: attend(x, plan, dropout=drop), qkv) for _ in range(2))
    again = outputs_and_gradients(lambda x: attend(x, plan, dropout=module()), qkv)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[0], attend(qkv, plan, dropout=module(key=(1, 3))))


def test_nothing_is_dropped_outside_of_training_or_at_rate_zero():
    lengths = [20, 9, 300]
    qkv, plan = random_qkv(lengths, 16), plan_attention(boundaries(lengths), 2)
    plain = attend(qkv, plan)
    assert torch.equal(attend(qkv, plan, dropout=module().eval()), plain)
    assert torch.equal(attend(qkv, plan, dropout=module(rate=0.0)), plain)
    assert not torch.equal(attend(qkv, plan, dropout=module()), plain)

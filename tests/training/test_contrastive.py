import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.autograd import gradcheck

from xlm.training.contrastive import Pairs, gather_pairs, pair_losses, unit_vectors


def pairs(count=6, keys=None, dtype=torch.float32):
    torch.manual_seed(0)
    sources, targets = (F.normalize(torch.randn(count, 8, dtype=dtype), dim=-1) for _ in range(2))
    return Pairs(sources, targets, torch.arange(count) if keys is None else torch.tensor(keys), torch.arange(count))


def test_agrees_with_two_cross_entropies_where_all_keys_differ():
    group = pairs()
    logits = group.sources @ group.targets.T / 0.1
    gold = torch.arange(6)
    expected = (F.cross_entropy(logits, gold) + F.cross_entropy(logits.T, gold)) / 2
    assert pair_losses(group, 0.1).mean().item() == pytest.approx(expected.item(), rel=1e-6)


def test_pairs_of_one_key_are_no_negatives_of_each_other():
    group = pairs(4, keys=[7, 7, 8, 9])
    similarity = group.sources @ group.targets.T / 0.1
    expected = []
    for i, negatives in enumerate([[2, 3], [2, 3], [0, 1, 3], [0, 1, 2]]):
        forth = torch.logsumexp(similarity[i, [i, *negatives]], 0) - similarity[i, i]
        back = torch.logsumexp(similarity[[i, *negatives], i], 0) - similarity[i, i]
        expected.append((forth + back) / 2)
    torch.testing.assert_close(pair_losses(group, 0.1), torch.stack(expected))


def test_a_group_of_one_key_has_nothing_to_learn():
    assert pair_losses(pairs(3, keys=[1, 1, 1]), 0.1).tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_is_the_numerical_one():
    group = pairs(4, keys=[1, 2, 2, 3], dtype=torch.float64)

    def loss(sources, targets):
        return pair_losses(Pairs(sources, targets, group.keys, group.indices), 0.3).mean()

    assert gradcheck(loss, (group.sources.requires_grad_(), group.targets.requires_grad_()))


def test_one_process_gathers_by_ordering():
    group = pairs(4)
    shuffled = torch.tensor([2, 0, 3, 1])
    found = gather_pairs(Pairs(group.sources[shuffled], group.targets[shuffled], group.keys[shuffled], group.indices[shuffled]), (4,))
    assert torch.equal(found.sources, group.sources)
    assert torch.equal(found.keys, group.keys)


def test_unit_vectors_are_fp32_and_survive_zero():
    vectors = unit_vectors(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.bfloat16))
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))

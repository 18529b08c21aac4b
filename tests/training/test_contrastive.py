import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from xlm.training.contrastive import Pairs, gather_pairs, pair_losses, text_hashes, unit_vectors


def pairs(count=6, keys=None, texts=None, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sources, targets = (F.normalize(torch.randn(count, 8, dtype=dtype, generator=generator), dim=-1) for _ in range(2))
    texts = torch.arange(2 * count).view(count, 2) if texts is None else torch.tensor(texts)
    return Pairs(sources, targets, 100 + torch.arange(count) if keys is None else torch.tensor(keys), torch.arange(count), texts)


def by_hand(queries, candidates, own, negatives, temperature):
    """-log softmax over the own candidate and the negatives."""
    similarity = queries @ candidates.T / temperature
    return torch.stack(
        [
            torch.logsumexp(similarity[i, [own[i], *others]], 0) - similarity[i, own[i]]
            for i, others in zip(range(len(queries)), negatives, strict=True)
        ]
    )


def test_agrees_with_two_cross_entropies_where_all_pairs_differ():
    group = pairs()
    logits = group.sources @ group.targets.T / 0.1
    gold = torch.arange(6)
    expected = (F.cross_entropy(logits, gold) + F.cross_entropy(logits.T, gold)) / 2
    assert pair_losses(group, 0.1).mean().item() == pytest.approx(expected.item(), rel=1e-6)


def test_pairs_of_one_key_are_no_negatives_of_each_other():
    group = pairs(4, keys=[7, 7, 8, 9])
    negatives = [[2, 3], [2, 3], [0, 1, 3], [0, 1, 2]]
    forth = by_hand(group.sources, group.targets, range(4), negatives, 0.1)
    back = by_hand(group.targets, group.sources, range(4), negatives, 0.1)
    torch.testing.assert_close(pair_losses(group, 0.1), (forth + back) / 2)


@pytest.mark.parametrize("texts", [[[1, 5], [2, 5], [3, 6], [4, 7]], [[5, 1], [5, 2], [6, 3], [7, 4]]], ids=["target", "source"])
def test_pairs_that_share_a_text_are_no_negatives_of_each_other(texts):
    negatives = [[2, 3], [2, 3], [0, 1, 3], [0, 1, 2]]
    group = pairs(4, texts=texts)
    forth = by_hand(group.sources, group.targets, range(4), negatives, 0.1)
    back = by_hand(group.targets, group.sources, range(4), negatives, 0.1)
    torch.testing.assert_close(pair_losses(group, 0.1), (forth + back) / 2)


def test_keys_and_earlier_pairs_are_what_queries_are_compared_with():
    group, keys, earlier = pairs(3, keys=[1, 2, 3]), pairs(3, keys=[1, 2, 3], seed=1), pairs(4, keys=[5, 2, 6, 7], seed=2)
    earlier = Pairs(earlier.sources, earlier.targets, earlier.keys, earlier.indices, earlier.texts + 1000)
    earlier.texts[3, 1] = group.texts[0, 1]  # says the same as pair 0
    negatives = [[1, 2, 3, 4, 5], [0, 2, 3, 5, 6], [0, 1, 3, 4, 5, 6]]
    forth = by_hand(group.sources, torch.cat([keys.targets, earlier.targets]), range(3), negatives, 0.2)
    back = by_hand(group.targets, torch.cat([keys.sources, earlier.sources]), range(3), negatives, 0.2)
    torch.testing.assert_close(pair_losses(group, 0.2, keys, earlier), (forth + back) / 2)


def test_a_group_of_one_key_has_nothing_to_learn():
    assert pair_losses(pairs(3, keys=[1, 1, 1]), 0.1).tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_is_the_numerical_one():
    group, earlier = pairs(4, keys=[1, 2, 2, 3], dtype=torch.float64), pairs(3, keys=[4, 5, 2], dtype=torch.float64, seed=1)

    def loss(sources, targets):
        return pair_losses(group.with_vectors(sources, targets), 0.3, earlier=earlier).mean()

    assert gradcheck(loss, (group.sources.requires_grad_(), group.targets.requires_grad_()))


def test_one_process_gathers_by_ordering():
    group = pairs(4)
    shuffled = torch.tensor([2, 0, 3, 1])
    found = gather_pairs(Pairs(*(getattr(group, name)[shuffled] for name in ("sources", "targets", "keys", "indices", "texts"))), (4,))
    for name in ("sources", "targets", "keys", "indices", "texts"):
        assert torch.equal(getattr(found, name), getattr(group, name))


@given(texts=st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=30))
@settings(max_examples=100, deadline=None)
def test_texts_have_one_hash_exactly_where_their_pieces_are_the_same(texts):
    ids = torch.tensor([piece for text in texts for piece in text], dtype=torch.int64)
    bounds = torch.tensor([0, *map(len, texts)]).cumsum(0).int()
    hashes = text_hashes(ids, bounds).tolist()
    for first, one in zip(texts, hashes, strict=True):
        assert [one == other for other in hashes] == [first == second for second in texts]


def test_unit_vectors_are_fp32_and_survive_zero():
    vectors = unit_vectors(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.bfloat16))
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))

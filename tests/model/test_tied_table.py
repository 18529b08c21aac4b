"""A tied table's gradient against the one that torch adds up from two dense ones."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from xlm.model.tied_table import look_up, share_table
from xlm.model.vocabulary_loss import vocabulary_loss


def parameter(vocabulary=30, width=4, dtype=torch.float32, seed=0):
    return torch.nn.Parameter(torch.randn(vocabulary, width, generator=torch.Generator().manual_seed(seed)).to(dtype))


def tied(weight, ids, labels):
    lookup, projection = share_table(weight)
    hidden = look_up(lookup, ids)[: len(labels)].tanh()
    return vocabulary_loss(hidden, projection, None, labels, torch.ones(len(labels))).total


def plainly(weight, ids, labels):
    hidden = F.embedding(ids, weight)[: len(labels)].tanh()
    return F.cross_entropy(F.linear(hidden, weight).float(), labels, reduction="sum")


@given(tokens=st.integers(0, 60), predictions=st.integers(0, 20), vocabulary=st.integers(1, 30), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_gradient_equals_that_of_an_ordinary_tied_table(tokens, predictions, vocabulary, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (tokens,), generator=generator)
    labels = torch.randint(0, vocabulary, (min(predictions, tokens),), generator=generator)
    weight = parameter(vocabulary)
    (mine,) = torch.autograd.grad(tied(weight, ids, labels), weight)
    (theirs,) = torch.autograd.grad(plainly(weight, ids, labels), weight)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_both_outputs_are_the_table_itself():
    weight = parameter()
    for output in share_table(weight):
        assert output.data_ptr() == weight.data_ptr()
        assert torch.equal(output, weight)


def test_lookup_alone_and_projection_alone():
    weight, ids = parameter(), torch.tensor([3, 3, 0])
    (mine,) = torch.autograd.grad(look_up(share_table(weight)[0], ids).pow(2).sum(), weight)
    (theirs,) = torch.autograd.grad(F.embedding(ids, weight).pow(2).sum(), weight)
    torch.testing.assert_close(mine, theirs)
    assert mine.layout == torch.strided
    (mine,) = torch.autograd.grad(share_table(weight)[1].sum(), weight)
    assert torch.equal(mine, torch.ones_like(weight))


def test_a_gradient_that_is_one_number_seen_everywhere_is_not_written_to():
    weight, ids = parameter(), torch.tensor([3, 3, 0])
    lookup, projection = share_table(weight)
    (mine,) = torch.autograd.grad(projection.sum() + look_up(lookup, ids).sum(), weight)
    expected = torch.ones_like(weight)
    expected[3] += 2
    expected[0] += 1
    assert torch.equal(mine, expected)


def test_several_lookups_and_projections_add_up():
    weight, ids, labels = parameter(), torch.tensor([3, 3, 0, 7]), torch.tensor([1, 3])
    lookup, projection = share_table(weight)
    first, second = look_up(lookup, ids), look_up(lookup, ids.flip(0)).tanh()
    losses = [vocabulary_loss(rows[:2], projection, None, labels, torch.ones(2)).total for rows in (first, second)]
    (mine,) = torch.autograd.grad(losses[0] + 0.5 * losses[1], weight)
    first, second = F.embedding(ids, weight), F.embedding(ids.flip(0), weight).tanh()
    losses = [F.cross_entropy(F.linear(rows[:2], weight), labels, reduction="sum") for rows in (first, second)]
    (theirs,) = torch.autograd.grad(losses[0] + 0.5 * losses[1], weight)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_no_tokens_and_a_frozen_table():
    weight, nothing = parameter(), torch.empty(0, dtype=torch.int64)
    (gradient,) = torch.autograd.grad(look_up(share_table(weight)[0], nothing).sum(), weight)
    assert torch.equal(gradient, torch.zeros_like(weight))
    frozen = weight.detach()
    assert not look_up(share_table(frozen)[0], torch.tensor([1])).requires_grad


def test_hooks_of_the_parameter_see_the_whole_gradient_once():
    weight, ids, labels = parameter(), torch.tensor([3, 3, 0, 7]), torch.tensor([1, 3])
    (true,) = torch.autograd.grad(plainly(weight, ids, labels), weight)
    seen = []
    weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    weight.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.clone()))
    tied(weight, ids, labels).backward()
    assert len(seen) == 2
    for gradient in seen:
        torch.testing.assert_close(gradient, true)


def test_gradients_accumulate_over_micro_batches():
    weight, ids, labels = parameter(), torch.tensor([3, 3, 0, 7]), torch.tensor([1, 3])
    for _ in range(2):
        tied(weight, ids, labels).backward()
    (true,) = torch.autograd.grad(plainly(weight, ids, labels), weight)
    torch.testing.assert_close(weight.grad, 2 * true)


@pytest.mark.parametrize("width", [4, 600], ids=["returned, then added", "added at once"])
def test_a_standing_gradient_gets_everything(width):
    """Width 4 is too narrow for the vocabulary loss to add in blocks."""
    weight, ids, labels = parameter(width=width), torch.tensor([3, 3, 0, 7]), torch.tensor([1, 3])
    standing = torch.full_like(weight, 2.0)
    lookup, projection = share_table(weight, standing)
    hidden = look_up(lookup, ids)[:2].tanh()
    vocabulary_loss(hidden, projection, None, labels, torch.ones(2), standing=standing).total.backward()
    assert weight.grad is None
    (true,) = torch.autograd.grad(plainly(weight, ids, labels), weight)
    torch.testing.assert_close(standing - 2.0, true, rtol=1e-5, atol=1e-5)


def test_a_repeated_id_adds_up_in_fp32_under_bf16():
    """Ones added in bf16 would stop at 256."""
    weight = parameter(dtype=torch.bfloat16)
    (gradient,) = torch.autograd.grad(look_up(share_table(weight)[0], torch.full((1000,), 5)).sum(), weight)
    assert gradient.dtype == torch.bfloat16
    assert gradient[5].tolist() == [1000.0] * 4
    assert float(gradient.float().sum()) == 4000.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_twice(dtype):
    weight, ids, labels = parameter(dtype=dtype), torch.randint(0, 30, (500,)), torch.randint(0, 30, (50,))
    first, second = (torch.autograd.grad(tied(weight, ids, labels), weight)[0] for _ in range(2))
    assert torch.equal(first, second)


class _Tables(TorchDispatchMode):
    """Notes the memory of every tensor as large as the table."""

    def __init__(self, size):
        super().__init__()
        self.size, self.pointers = size, set()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        if isinstance(result, torch.Tensor) and result.layout == torch.strided and result.untyped_storage().nbytes() >= self.size:
            self.pointers.add(result.untyped_storage().data_ptr())
        return result


def test_there_is_one_dense_gradient_and_it_becomes_the_parameters():
    weight, ids, labels = parameter(3000, 16), torch.randint(0, 3000, (50,)), torch.randint(0, 3000, (8,))
    with _Tables(weight.nbytes) as watch:
        tied(weight, ids, labels).backward()
    assert watch.pointers <= {weight.data_ptr(), weight.grad.data_ptr()}
    weight.grad = None
    with _Tables(weight.nbytes) as watch:
        plainly(weight, ids, labels).backward()
    assert len(watch.pointers) > 2

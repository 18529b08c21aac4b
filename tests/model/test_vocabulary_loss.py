"""The vocabulary loss against torch's own cross-entropy over all logits."""

import gc
import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from xlm.model import vocabulary_memory
from xlm.model.vocabulary_loss import vocabulary_loss


def inputs(predictions, vocabulary, width=12, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(predictions, width, generator=generator).to(dtype).requires_grad_()
    table = (0.3 * torch.randn(vocabulary, width, generator=generator)).to(dtype).requires_grad_()
    bias = torch.randn(vocabulary, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(0, vocabulary, (predictions,), generator=generator)
    weights = torch.randn(predictions, generator=generator)
    uniforms = torch.rand(predictions, generator=generator)
    return hidden, table, bias, labels, weights, uniforms


def plain(hidden, table, bias, labels, weights, label_smoothing=0.0, z_loss=0.0):
    logits = F.linear(hidden, table, bias)
    losses = F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
    return (weights * (losses + z_loss * logits.logsumexp(1) ** 2)).sum()


@pytest.fixture
def small(monkeypatch):
    """Chunks of seven pieces, and hardly any room beside the gradient."""
    small_pieces(monkeypatch)


@pytest.fixture(params=[True, False], ids=["small", "whole"])
def small_or_not(request, monkeypatch):
    """Chunks of seven pieces, or one of all."""
    if request.param:
        small_pieces(monkeypatch)


def small_pieces(monkeypatch, chunk=7, beside=4):
    monkeypatch.setattr(vocabulary_memory, "CHUNK_LOGITS", 1)
    monkeypatch.setattr(vocabulary_memory, "MIN_CHUNK_PIECES", chunk)
    monkeypatch.setattr(vocabulary_memory, "BESIDE", 1)
    monkeypatch.setattr(vocabulary_memory, "MIN_BESIDE", beside)


@given(
    predictions=st.integers(0, 40),
    vocabulary=st.integers(1, 50),
    width=st.integers(1, 24),
    chunk=st.integers(1, 60),
    beside=st.integers(1, 40),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    z_loss=st.sampled_from([0.0, 0.01]),
    with_bias=st.booleans(),
    seed=st.integers(0, 5),
)
@settings(max_examples=80, deadline=None)
def test_everything_equals_the_plain_computation(predictions, vocabulary, width, chunk, beside, smoothing, z_loss, with_bias, seed):
    hidden, table, bias, labels, weights, uniforms = inputs(predictions, vocabulary, width, seed=seed)
    bias = bias if with_bias else None
    parameters = [tensor for tensor in (hidden, table, bias) if tensor is not None]
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_pieces(monkeypatch, chunk, beside)
        ours = vocabulary_loss(hidden, table, bias, labels, weights, label_smoothing=smoothing, z_loss=z_loss, uniforms=uniforms)
        true = plain(hidden, table, bias, labels, weights, smoothing, z_loss)
        logits = F.linear(hidden, table, bias)
        torch.testing.assert_close(ours.total, true, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.losses, F.cross_entropy(logits, labels, reduction="none"), rtol=1e-5, atol=1e-5)
        assert torch.equal(ours.correct, logits.argmax(1) == labels)
        mine = torch.autograd.grad(ours.total, parameters)
        theirs = torch.autograd.grad(true, parameters)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@given(
    predictions=st.integers(0, 40),
    width=st.sampled_from([2, 13, 24]),
    smoothing=st.sampled_from([0.0, 0.1]),
    with_bias=st.booleans(),
    seed=st.integers(0, 5),
)
@settings(max_examples=30, deadline=None)
def test_the_gradient_of_the_table_is_added_to_the_one_that_stands(predictions, width, smoothing, with_bias, seed):
    hidden, table, bias, labels, weights, uniforms = inputs(predictions, 37, width, seed=seed)
    bias = bias if with_bias else None
    others = [tensor for tensor in (hidden, bias) if tensor is not None]
    standing = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed))
    before = standing.clone()
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_pieces(monkeypatch)
        monkeypatch.setattr(vocabulary_memory, "MIN_WITHOUT_LENDER", 1)
        ours = vocabulary_loss(hidden, table, bias, labels, weights, label_smoothing=smoothing, uniforms=uniforms, standing=standing)
        apart = vocabulary_loss(hidden, table, bias, labels, weights, label_smoothing=smoothing, uniforms=uniforms)
        mine = torch.autograd.grad(ours.total, [*others, table], allow_unused=True)
        theirs = torch.autograd.grad(apart.total, [*others, table])
    assert mine[-1] is None
    torch.testing.assert_close(mine[:-1], theirs[:-1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(standing, before + theirs[-1], rtol=1e-5, atol=1e-5)
    assert torch.equal(ours.samples, apart.samples)


@pytest.mark.parametrize("misuse", ["another factor", "a second pass"])
def test_a_standing_gradient_is_for_one_backward_pass_as_it_is(misuse):
    hidden, table, bias, labels, weights, _ = inputs(3, 9, width=600)
    total = vocabulary_loss(hidden, table, bias, labels, weights, standing=torch.zeros_like(table)).total
    if misuse == "a second pass":
        total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="single backward pass with a factor of 1"):
        (total * 0.5 if misuse == "another factor" else total).backward()


@pytest.mark.usefixtures("small")
def test_gradients_pass_gradcheck_in_float64():
    hidden, table, bias, labels, weights, _ = inputs(7, 9, width=2, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda *tensors: vocabulary_loss(*tensors, labels, weights, label_smoothing=0.1, z_loss=0.01).total, (hidden, table, bias)
    )


@pytest.mark.usefixtures("small")
def test_a_kept_graph_gives_its_gradients_again_and_with_another_factor():
    hidden, table, bias, labels, weights, _ = inputs(30, 40)
    total = vocabulary_loss(hidden, table, bias, labels, weights).total
    once = torch.autograd.grad(total, (hidden, table, bias), retain_graph=True)
    again = torch.autograd.grad(-0.3 * total, (hidden, table, bias))
    for first, second in zip(once, again, strict=True):
        torch.testing.assert_close(-0.3 * first, second)


def test_a_loss_that_is_let_go_without_a_backward_pass_lets_go_of_its_gradients():
    hidden, table, bias, labels, weights, _ = inputs(30, 40)
    found = vocabulary_loss(hidden, table, bias, labels, weights)
    gradient = weakref.ref(found.total.grad_fn.gradients[1])
    assert gradient() is not None
    gc.disable()
    try:
        del found
        assert gradient() is None
    finally:
        gc.enable()


def test_only_the_total_has_a_gradient():
    found = vocabulary_loss(*inputs(5, 9)[:5], uniforms=torch.rand(5))
    assert found.total.requires_grad
    assert not any(tensor.requires_grad for tensor in (found.losses, found.correct, found.samples))
    assert found.losses.dtype == found.total.dtype == torch.float32
    assert vocabulary_loss(*inputs(5, 9)[:5]).samples is None


def test_no_prediction_is_a_loss_of_zero_with_gradients_of_zero():
    hidden, table, bias, labels, weights, uniforms = inputs(0, 9)
    found = vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms)
    assert found.total == 0
    assert found.losses.shape == found.correct.shape == found.samples.shape == (0,)
    found.total.backward()
    for parameter in (hidden, table, bias):
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (1, 2), (0, 1), (0, 2)])
@pytest.mark.usefixtures("small")
def test_what_is_frozen_gets_no_gradient_and_the_rest_gets_its_own(frozen):
    *tensors, labels, weights, _ = inputs(30, 40)
    for index in frozen:
        tensors[index].requires_grad_(False)
    trained = [tensor for tensor in tensors if tensor.requires_grad]
    mine = torch.autograd.grad(vocabulary_loss(*tensors, labels, weights).total, trained)
    torch.testing.assert_close(mine, torch.autograd.grad(plain(*tensors, labels, weights), trained), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("small")
def test_evaluation_computes_no_gradient():
    hidden, table, bias, labels, weights, _ = inputs(30, 100)
    with torch.no_grad(), Largest() as watch:
        found = vocabulary_loss(hidden, table, bias, labels, weights)
    assert not found.total.requires_grad
    torch.testing.assert_close(found.total, plain(hidden, table, bias, labels, weights))
    assert max(size for pointer, size in watch.storages if pointer != table.data_ptr()) < table.nbytes


def nearly(mine, theirs, tolerance):
    assert (mine.float() - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.parametrize("predictions", [4, 9, 60])
@pytest.mark.parametrize("width", [31, 32])
@pytest.mark.usefixtures("small")
def test_bf16_parameters_get_bf16_gradients_as_near_as_one_rounding_a_block(predictions, width):
    hidden, table, bias, labels, weights, _ = inputs(predictions, 200, width, dtype=torch.bfloat16)
    found = vocabulary_loss(hidden, table, bias, labels, weights, label_smoothing=0.1)
    exact = [tensor.detach().float().requires_grad_() for tensor in (hidden, table, bias)]
    true = plain(*exact, labels, weights, 0.1)
    assert found.total.dtype == torch.float32
    mine = torch.autograd.grad(found.total, (hidden, table, bias))
    for ours, theirs in zip(mine, torch.autograd.grad(true, exact), strict=True):
        assert ours.dtype == torch.bfloat16
        nearly(ours, theirs, 0.01)


def test_bf16_losses_are_fp32_sums_over_the_rounded_logits():
    """At 100,000 pieces sums in bf16 would stop growing at 256."""
    hidden, table, bias, labels, weights, _ = inputs(3, 100_000, dtype=torch.bfloat16)
    losses = vocabulary_loss(hidden, table, bias, labels, weights).losses
    true = F.cross_entropy(F.linear(hidden, table, bias).float(), labels, reduction="none")
    torch.testing.assert_close(losses, true, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("small")
def test_under_autocast_products_run_in_its_type_and_fp32_parameters_get_fp32_gradients():
    hidden, table, bias, labels, weights, _ = inputs(30, 40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = vocabulary_loss(hidden, table, bias, labels, weights)
    mine = torch.autograd.grad(found.total, (hidden, table, bias))
    true = plain(hidden, table, bias, labels, weights)
    assert not torch.equal(found.total, true)
    for ours, theirs in zip(mine, torch.autograd.grad(true, (hidden, table, bias)), strict=True):
        assert ours.dtype == torch.float32
        nearly(ours, theirs, 0.02)


def test_extreme_logits_have_finite_losses_and_gradients():
    hidden = torch.tensor([[1.0], [1.0]], requires_grad=True)
    table = torch.tensor([[0.0], [500.0], [-3e4]], requires_grad=True)
    labels = torch.tensor([0, 2])
    found = vocabulary_loss(hidden, table, None, labels, torch.ones(2))
    torch.testing.assert_close(found.losses, torch.tensor([500.0, 30500.0]))
    found.total.backward()
    torch.testing.assert_close(table.grad, torch.tensor([[-1.0], [2.0], [-1.0]]))


@pytest.mark.usefixtures("small")
def test_pieces_ruled_out_by_the_bias_do_no_harm():
    hidden, table, bias, labels, weights, uniforms = inputs(30, 40)
    bias = bias.detach().clone()
    bias[:20] = -torch.inf
    labels = labels % 20 + 20
    found = vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms)
    true = plain(hidden, table, bias, labels, weights)
    torch.testing.assert_close(found.total, true)
    torch.testing.assert_close(torch.autograd.grad(found.total, table), torch.autograd.grad(true, table), rtol=1e-5, atol=1e-5)
    assert int(found.samples.min()) >= 20


@pytest.mark.usefixtures("small")
def test_of_equal_logits_the_first_is_the_guess():
    found = vocabulary_loss(torch.zeros(4, 2), torch.zeros(30, 2), None, torch.tensor([0, 1, 28, 29]), torch.ones(4))
    assert found.correct.tolist() == [True, False, False, False]


@given(vocabulary=st.integers(1, 40), seed=st.integers(0, 1000), spread=st.sampled_from([1.0, 60.0]))
@settings(max_examples=60, deadline=None)
def test_samples_are_the_inverse_of_the_cumulative_distribution(vocabulary, seed, spread):
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_pieces(monkeypatch)
        hidden, table, bias, labels, weights, uniforms = inputs(20, vocabulary, seed=seed)
        hidden = spread * hidden
        samples = vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms).samples
        probabilities = F.linear(hidden, table, bias).double().softmax(1)
        cumulative = probabilities.cumsum(1)
        after = cumulative.gather(1, samples[:, None])[:, 0]
        before = after - probabilities.gather(1, samples[:, None])[:, 0]
        assert bool((before <= uniforms + 1e-5).all())
        assert bool((uniforms - 1e-5 <= after).all())


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-24])
@pytest.mark.usefixtures("small")
def test_samples_at_the_ends_are_pieces_that_have_a_probability(uniform):
    logits = torch.full((1, 50), -200.0)
    logits[0, [9, 30]] = 0.0
    uniforms = torch.tensor([uniform])
    samples = vocabulary_loss(torch.ones(1, 1), logits.T, None, torch.tensor([0]), torch.ones(1), uniforms=uniforms).samples
    assert samples.tolist() == [9 if uniform == 0 else 30]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("trained", [True, False])
def test_logits_that_are_not_finite_give_samples_of_the_vocabulary_and_a_total_that_is_not(small_or_not, poison, trained):
    """A step that diverged has to reach its gradient, by which it is skipped."""
    del small_or_not
    hidden, table, bias, labels, weights, uniforms = inputs(9, 40)
    with torch.no_grad():
        hidden[::2] = poison
    with torch.set_grad_enabled(trained):
        found = vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms)
    assert bool(((found.samples >= 0) & (found.samples < 40)).all())
    assert not torch.isfinite(found.total)


def test_samples_with_and_without_gradients_are_the_same():
    hidden, table, bias, labels, weights, uniforms = inputs(30, 40)
    trained = vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms).samples
    with torch.no_grad():
        assert torch.equal(trained, vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms).samples)


@pytest.mark.usefixtures("small")
def test_the_same_bits_twice():
    tensors = inputs(30, 40)

    def bits():
        found = vocabulary_loss(*tensors[:5], uniforms=tensors[5])
        return [found.total, found.losses, found.samples, *torch.autograd.grad(found.total, tensors[:3])]

    assert all(torch.equal(first, second) for first, second in zip(bits(), bits(), strict=True))


class Largest(TorchDispatchMode):
    """Notes the numbers of elements of all tensors that operations return, and of the memory they own or lend."""

    def __init__(self):
        super().__init__()
        self.sizes, self.storages = [], set()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.sizes.append(tensor.numel())
                self.storages.add((tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()))
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_as_large_as_all_logits_exists(monkeypatch, dtype):
    """The largest tensor is the table's gradient; the plain computation shows that the watch sees the logits."""
    small_pieces(monkeypatch, chunk=50)
    hidden, table, bias, labels, weights, uniforms = inputs(60, 2000, width=12, dtype=dtype)
    logits = len(hidden) * len(table)

    def largest(loss):
        with Largest() as watch:
            loss().backward()
        return max(watch.sizes)

    ours = largest(lambda: vocabulary_loss(hidden, table, bias, labels, weights, uniforms=uniforms, z_loss=0.1).total)
    assert ours == table.numel() < logits / 4
    assert largest(partial(plain, hidden, table, bias, labels, weights)) == logits


def test_nor_does_it_beside_a_gradient_that_stands(monkeypatch):
    small_pieces(monkeypatch, chunk=50)
    monkeypatch.setattr(vocabulary_memory, "MIN_WITHOUT_LENDER", 1)
    hidden, table, bias, labels, weights, _ = inputs(60, 2000, width=200)
    with Largest() as watch:
        vocabulary_loss(hidden, table, bias, labels, weights, standing=torch.zeros_like(table)).total.backward()
    beside = [size for size in watch.sizes if size < table.numel()]
    assert max(beside) == len(hidden) * len(table) / 2


def test_an_fp32_table_has_no_second_tensor_of_its_size(monkeypatch):
    """Its gradient is the memory that the sums, and before them the exponentials, were in."""
    small_pieces(monkeypatch, chunk=50)
    hidden, table, bias, labels, weights, _ = inputs(12, 2000, width=12)
    with Largest() as watch:
        vocabulary_loss(hidden, table, bias, labels, weights).total.backward()
    large = {pointer for pointer, size in watch.storages if size >= table.nbytes / 2}
    assert large <= {table.data_ptr(), table.grad.data_ptr()}
    assert table.grad.untyped_storage().nbytes() == table.nbytes


@pytest.mark.parametrize("factor", [3.0, 1024.0])
def test_gradients_are_of_the_loss_times_the_factor_it_goes_backward_with(factor, small_or_not):
    hidden, table, bias, labels, weights, _ = inputs(30, 40, dtype=torch.float64)
    ours = vocabulary_loss(hidden, table, bias, labels, weights, label_smoothing=0.1, z_loss=0.01, factor=factor)
    true = plain(hidden, table, bias, labels, weights.double(), 0.1, 0.01)
    torch.testing.assert_close(ours.total, true)
    for said in (factor, 7.0):  # as said, and otherwise after all
        mine = torch.autograd.grad(ours.total * said, (hidden, table, bias), retain_graph=True)
        torch.testing.assert_close(mine, torch.autograd.grad(true * said, (hidden, table, bias), retain_graph=True))


def test_a_loss_scale_keeps_gradients_that_fp16_would_lose():
    """One of ten thousand predictions: its gradient is below the smallest number of fp16, 6e-8, unless it is scaled first."""
    hidden, table, _, labels, _, _ = inputs(30, 400, dtype=torch.float16)
    weights = torch.full((30,), 1e-6)
    exact = table.detach().float().requires_grad_()
    true = torch.autograd.grad(plain(hidden.float(), exact, None, labels, weights), exact)[0]
    scaled = torch.autograd.grad(vocabulary_loss(hidden, table, None, labels, weights, factor=2.0**16).total * 2.0**16, table)[0]
    torch.testing.assert_close(scaled.float() / 2.0**16, true, rtol=0.02, atol=1e-9)
    late = torch.autograd.grad(vocabulary_loss(hidden, table, None, labels, weights).total * 2.0**16, table)[0]
    assert (late == 0).float().mean() > 0.5

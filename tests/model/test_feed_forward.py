"""The feed-forward part against its formula, forward and backward."""

import math

import pytest
import torch

from tests.model.packed import shape
from xlm.model.feed_forward import FeedForward
from xlm.model.initialisation import initialise_parameters


def exact_gelu(values):
    return values * 0.5 * (1.0 + torch.erf(values / math.sqrt(2.0)))


def tanh_gelu(values):
    return 0.5 * values * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (values + 0.044715 * values**3)))


def plain(part, hidden, activation):
    """Write the part out: x W1 + b1, activation, W2 + b2."""
    inner = hidden @ part.inner.weight.T + (0.0 if part.inner.bias is None else part.inner.bias)
    if activation == "geglu":
        values, gate = inner[:, :24], inner[:, 24:]
        inner = exact_gelu(values) * gate
    else:
        inner = {"gelu": exact_gelu, "gelu_tanh": tanh_gelu}[activation](inner)
    return inner @ part.output.weight.T + (0.0 if part.output.bias is None else part.output.bias)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "geglu"])
def test_follows_its_formula_with_its_gradients(activation, biases):
    config = shape(activation=activation, biases=biases)
    part = FeedForward(config)
    initialise_parameters(part, config, seed=1)
    if biases:
        with torch.no_grad():
            part.inner.bias.normal_(generator=torch.Generator().manual_seed(1))
            part.output.bias.normal_(generator=torch.Generator().manual_seed(2))
    hidden = torch.randn(9, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    given = torch.randn(9, 16, generator=torch.Generator().manual_seed(3))
    wanted = [hidden, *part.parameters()]
    ours, theirs = part(hidden), plain(part, hidden, activation)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for mine, expected in zip(torch.autograd.grad(ours, wanted, given), torch.autograd.grad(theirs, wanted, given), strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-4, rtol=1e-4)
    assert len(wanted) == (5 if biases else 3)


def test_nothing_comes_of_no_tokens():
    part = FeedForward(shape())
    hidden = torch.zeros(0, 16, requires_grad=True)
    part(hidden).sum().backward()
    assert hidden.grad.shape == (0, 16)
    assert all(bool((parameter.grad == 0).all()) for parameter in part.parameters())

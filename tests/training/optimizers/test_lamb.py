import pytest
import torch
from plain_optimizers import lamb_step

from xlm.training.optimizers.lamb import Lamb

OPTIONS = {"betas": (0.9, 0.98), "eps": 1e-6}


def values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("adapted", [True, False])
def test_is_the_papers_algorithm(decay, adapted):
    shapes = [(4, 3), (3,), (2, 5)]
    ours = [torch.nn.Parameter(values(*shape)) for shape in shapes]
    theirs = [values(*shape).double() for shape in shapes]
    states = [{} for _ in shapes]
    optimizer = Lamb([{"params": ours, "weight_decay": decay, "adapted": adapted}], lr=0.03, **OPTIONS)
    for step in range(6):
        for number, (parameter, weight, state) in enumerate(zip(ours, theirs, states, strict=True)):
            parameter.grad = values(*weight.shape, seed=10 * step + number)
            gradient = parameter.grad.double()
            lamb_step(weight, gradient, state, rate=0.03, betas=(0.9, 0.98), epsilon=1e-6, decay=decay, adapted=adapted)
        optimizer.step()
    for parameter, weight in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter.detach().double(), weight, rtol=1e-5, atol=1e-6)


def test_an_adapted_step_is_the_rate_times_the_weights_norm():
    parameter = torch.nn.Parameter(values(30, 7))
    before = parameter.detach().clone()
    optimizer = Lamb([{"params": [parameter], "weight_decay": 0.1}], lr=0.01, **OPTIONS)
    parameter.grad = 1e-3 * values(30, 7, seed=3)
    optimizer.step()
    assert (parameter - before).norm().item() == pytest.approx(0.01 * before.norm().item(), rel=1e-5)


def test_weights_of_zero_take_adams_step():
    parameter = torch.nn.Parameter(torch.zeros(4, 4))
    parameter.grad = values(4, 4)
    Lamb([{"params": [parameter]}], lr=0.01, **OPTIONS).step()
    torch.testing.assert_close(parameter.detach().abs(), torch.full((4, 4), 0.01), rtol=1e-3, atol=0)

import torch

from xlm.config.training import LossScaleSection
from xlm.training.loss_scale import LossScale


def test_the_scale_is_that_of_torchs_scaler_step_by_step():
    """torch.amp.GradScaler has the same rule: back off by half, grow after so many finite steps."""
    finite_steps = [False, True, True, True, False, True, True, False, False, True, True, True, True]
    ours = LossScale(LossScaleSection(initial_power=6, window=3))
    theirs = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for finite in finite_steps:
        assert ours.value == theirs.get_scale()
        theirs.scale(weight.sum() * (1.0 if finite else float("inf"))).backward()
        theirs.step(optimizer)
        theirs.update()
        optimizer.zero_grad()
        assert ours.follow(finite) is not finite
    assert ours.value == theirs.get_scale()


def test_at_its_minimum_the_scale_is_no_longer_the_reason():
    scale = LossScale(LossScaleSection(initial_power=2, minimum=2))
    assert [scale.follow(False) for _ in range(3)] == [True, False, False]
    assert scale.value == 2.0


def test_a_resumed_scale_grows_at_the_same_step():
    first, second = (LossScale(LossScaleSection(initial_power=4, window=3)) for _ in range(2))
    for _ in range(2):
        first.follow(True)
    second.load(first.state())
    for finite in (True, False, True, True, True):
        first.follow(finite)
        second.follow(finite)
        assert first.state() == second.state()
    assert first.value == 32.0

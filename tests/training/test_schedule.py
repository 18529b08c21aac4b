import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from xlm.config.training import ScheduleSection
from xlm.training.schedule import learning_rate


def schedule(kind="linear", warmup=10, final=0.0):
    return ScheduleSection(kind=kind, warmup_steps=warmup, final_share=final)


@given(
    kind=st.sampled_from(["linear", "cosine", "constant", "inverse_square_root"]),
    warmup=st.integers(0, 50),
    total=st.integers(1, 300),
    final=st.floats(0, 1),
)
def test_rises_to_the_peak_and_never_rises_after(kind, warmup, total, final):
    section = schedule(kind, warmup, final)
    rates = [learning_rate(section, 2.0, step, total) for step in range(total)]
    assert all(0 < rate <= 2.0 + 1e-12 or (rate == 0 and final == 0) for rate in rates)
    before, after = rates[: warmup + 1], rates[warmup:]
    assert all(a < b for a, b in itertools.pairwise(before))
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(after))
    if total > warmup:
        assert rates[warmup] == pytest.approx(2.0)


def test_linear_agrees_with_torch():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=3.0)
    reference = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.25, total_iters=40)
    for step in range(40):
        assert learning_rate(schedule(warmup=0, final=0.25), 3.0, step, 40) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_cosine_agrees_with_torch():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=3.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.3)
    for step in range(40):
        assert learning_rate(schedule("cosine", 0, 0.1), 3.0, step, 40) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_inverse_square_root_is_continuous_at_the_peak_and_falls_as_stated():
    section = schedule("inverse_square_root", 99)
    assert learning_rate(section, 1.0, 99, 10_000) == pytest.approx(1.0)
    assert learning_rate(section, 1.0, 399, 10_000) == pytest.approx(math.sqrt(100 / 400))

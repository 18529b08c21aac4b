import itertools
import math

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from xlm.config.recipe import Recipe
from xlm.config.training import ScheduleSection
from xlm.training.schedule import learning_rate, learning_rate_at


@pytest.fixture
def make_recipe():
    def build(phases, **training):
        common = {"sequence_length": 16, "sampling": {"kind": "proportional"}, "objectives": {"mlm": {"share": 1.0}}}
        return Recipe.model_validate(
            {
                "name": "made-up",
                "seed": 1,
                "corpora": {"manifest": "none.yaml"},
                "vocabulary": "none.yaml",
                "embeddings": {"kind": "random"},
                "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": 16},
                "phases": [{"name": f"phase{number}", **common, **phase} for number, phase in enumerate(phases)],
                "training": {"tokens_per_step": 16, "micro_batch_tokens": 16, **training},
            }
        )

    return build


def schedule(kind="linear", warmup=10, final=0.0):
    return ScheduleSection(kind=kind, warmup_steps=warmup, final_share=final)


@given(
    kind=st.sampled_from(["linear", "cosine", "constant", "inverse_square_root", "warmup_stable_decay"]),
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


@pytest.mark.parametrize(("share", "total", "final"), [(0.2, 100, 0.0), (0.5, 75, 0.1), (1.0, 60, 0.0)])
def test_stable_decay_agrees_with_transformers_after_the_warm_up(share, total, final):
    warmup = 10
    section = ScheduleSection(kind="warmup_stable_decay", warmup_steps=warmup, final_share=final, decay_share=share)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3.0)
    decay = min(round(share * total), total - warmup)
    options = {"num_warmup_steps": warmup, "num_stable_steps": total - warmup - decay, "num_decay_steps": decay}
    reference = transformers.get_wsd_schedule(optimizer, **options, decay_type="1-sqrt", min_lr_ratio=final)
    for step in range(total):
        if step >= warmup:
            assert learning_rate(section, 3.0, step, total) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()
    assert learning_rate(section, 3.0, total - 1, total) < learning_rate(section, 3.0, total // 2, total)


@pytest.mark.parametrize(("kind", "name"), [("linear", "linear"), ("cosine", "cosine"), ("constant", "constant_with_warmup")])
def test_schedules_agree_with_transformers_after_the_warm_up(kind, name):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3.0)
    reference = transformers.get_scheduler(name, optimizer, num_warmup_steps=10, num_training_steps=60)
    for step in range(60):
        if step >= 10:
            assert learning_rate(schedule(kind), 3.0, step, 60) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_a_phase_has_the_shape_of_the_run_at_its_own_peak(make_recipe):
    training = {"optimizer": {"learning_rate": 0.5}, "schedule": {"kind": "linear", "warmup_steps": 5}}
    recipe = make_recipe([{"steps": 20}, {"steps": 30, "learning_rate": 0.1}], **training)
    shape = [learning_rate(recipe.training.schedule, 1.0, step, 50) for step in range(50)]
    rates = [learning_rate_at(recipe, step, int(step >= 20)) for step in range(50)]
    assert rates == pytest.approx([share * (0.1 if step >= 20 else 0.5) for step, share in enumerate(shape)])

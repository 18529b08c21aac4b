import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.config.training import CheckpointSection
from xlm.training.retention import best_step, superfluous


def section(**given):
    return CheckpointSection(every_steps=10, **given)


@pytest.mark.parametrize(
    ("kept", "removed"),
    [
        ({"keep_last": 2}, [10, 20, 30]),
        ({"keep_last": 1, "keep_every_steps": 20}, [10, 30]),
        ({"keep_last": 1, "keep_best": True}, [10, 20, 40]),
        ({"keep_last": 9}, []),
    ],
)
def test_the_last_the_regular_ones_and_the_best_stay(kept, removed):
    assert superfluous({10: 3.0, 20: None, 30: 1.5, 40: 1.5, 50: 2.0}, 50, section(**kept)) == removed


def test_what_was_passed_over_as_damaged_goes_even_if_it_was_the_best():
    assert superfluous({10: None, 20: 2.0, 30: 0.1}, 20, section(keep_last=2, keep_every_steps=30, keep_best=True)) == [30]


def test_a_loss_that_is_no_number_is_never_the_best():
    assert best_step({1: float("nan"), 2: float("-inf"), 3: None}) is None
    assert best_step({1: float("nan"), 2: 7.0}) == 2


losses = st.dictionaries(st.integers(1, 40).map(lambda n: n * 10), st.none() | st.floats(allow_nan=True), min_size=1)
sections = st.builds(section, keep_last=st.integers(1, 4), keep_every_steps=st.none() | st.sampled_from([10, 30]), keep_best=st.booleans())


@given(losses, sections, st.data())
def test_each_is_kept_for_a_reason_of_its_own(losses, kept, data):
    written = data.draw(st.sampled_from(sorted(losses)))
    removed = set(superfluous(losses, written, kept))
    assert written not in removed
    measured = {step: loss for step, loss in losses.items() if step <= written and loss is not None and math.isfinite(loss)}
    for step in losses:
        newer = sum(step < other <= written for other in losses)
        best = step in measured and all((measured[step], step) <= (loss, other) for other, loss in measured.items())
        reasons = [newer < kept.keep_last, bool(kept.keep_every_steps) and step % kept.keep_every_steps == 0, kept.keep_best and best]
        assert (step in removed) is (step > written or not any(reasons)), (step, reasons)

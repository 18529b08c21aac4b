"""The profiler of some steps: where it begins and ends, what it writes, and what it says of other values."""

import json

import pytest
import torch

from xlm.errors import UserError
from xlm.training.profiling import ProfiledSteps, StepProfiler


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("10:15", r"--profile is '10:15'; give the first step and the one after the last: --profile steps=10:15"),
        ("steps=15:10", r"has no step; the second number has to be larger: steps=15:20"),
        ("steps=10:101", r"ends after this run's last step; its steps are 0 to 99"),
        ("steps=0:60", r"are 60 steps, and a trace holds 50"),
    ],
)
def test_other_values_are_sentences(text, sentence):
    with pytest.raises(UserError, match=sentence):
        ProfiledSteps.parse(text, 100)


def run(profiler, first, stop):
    said = []
    for step in range(first, stop):
        profiler.before(step)
        with torch.profiler.record_function(f"step {step}"):
            torch.ones(8, 8).mm(torch.ones(8, 8))
        said.append(profiler.after(step + 1, last=step + 1 == stop))
    return said


def test_a_trace_holds_the_steps_asked_for_and_no_others(tmp_path):
    said = run(StepProfiler(ProfiledSteps.parse("steps=2:4", 100), tmp_path), 0, 6)
    trace, table = tmp_path / "profile" / "steps-2-4.trace.json", tmp_path / "profile" / "steps-2-4.txt"
    assert [line is not None for line in said] == [False, False, False, True, False, False]
    assert said[3].startswith(f"profile of steps 2 to 3: {trace}")
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"step 2", "step 3", "aten::mm"} <= names
    assert not {"step 1", "step 4"} & names
    assert "aten::mm" in table.read_text()


def test_a_run_that_starts_or_ends_among_the_steps_profiles_those_it_takes(tmp_path):
    run(StepProfiler(ProfiledSteps(2, 9), tmp_path), 5, 7)
    assert [path.name for path in (tmp_path / "profile").glob("*.json")] == ["steps-5-7.trace.json"]


def test_a_run_that_is_past_them_does_nothing(tmp_path):
    run(StepProfiler(ProfiledSteps(2, 4), tmp_path), 4, 6)
    assert not (tmp_path / "profile").exists()

import json
import math

import pytest
import torch

from xlm.config.training import NonFiniteSection
from xlm.errors import UserError
from xlm.training import skipped
from xlm.training.distributed import Process
from xlm.training.engine import StepResult
from xlm.training.skipped import SkippedSteps
from xlm.training.step_runner import StepDone

FINE, INFINITE, HALVED = StepResult(True, 1.0), StepResult(False, math.inf), StepResult(False, math.inf, scale_too_high=True)
NAN = float("nan")


def taken(result=INFINITE, losses=(1.0, 2.0)):
    return StepDone(result, 0.1, 1, [torch.tensor(loss) for loss in losses])


def make(folder, rank=0, **section):
    return SkippedSteps(NonFiniteSection(**section), ("short", "long"), Process(rank, 1, rank, 1), folder, lambda step: f"show {step}")


def written(folder):
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_skipped_step_is_written_down_and_said_with_how_to_see_its_batch(tmp_path, monkeypatch):
    everyone = [[1.0, 2.0], [0.5, NAN]]
    monkeypatch.setattr(skipped, "gather_losses", lambda losses, process: everyone)
    steps = make(tmp_path)
    assert steps.after(6, taken(FINE)) is None
    line = steps.after(7, taken())
    assert line == "step 7 skipped: its loss is not finite (rank 1, micro-batch 1). Its batch: show 7"
    everyone = [[1.0, 2.0], [0.5, 0.5]]
    assert "its gradient is not finite, though its loss is" in steps.after(8, taken())
    first, second = written(tmp_path)
    assert (first["step"], first["phase"], first["where"]) == (7, "long", [{"rank": 1, "micro_batch": 1}])
    assert (first["loss"], first["gradient_norm"], first["show_batch"]) == ("nan", "inf", "show 7")
    assert (second["loss"], second["where"]) == (4.0, [])


def test_a_scale_that_is_too_high_is_counted_apart_and_has_no_limit(tmp_path):
    steps = make(tmp_path, limit=0, limit_in_a_row=1)
    said = [steps.after(step, taken(HALVED)) for step in range(30)]
    assert "halved" in said[0]
    assert said[1:] == [None] * 29
    assert (steps.not_finite, steps.scale_too_high, len(written(tmp_path))) == (0, 30, 30)


def test_so_many_in_a_row_end_the_run_on_every_rank_and_name_steps(tmp_path):
    ranks = [make(tmp_path, rank, limit_in_a_row=3) for rank in (0, 1)]
    for steps in ranks:
        for step in (0, 1, 3, 4):
            steps.after(step, taken())
            steps.after(2, taken(FINE)) if step == 1 else steps.after(90, taken(HALVED))
        with pytest.raises(UserError, match=r"3 steps in a row .* \(the latest: 0, 1, 3, 4, 5\).*limit_in_a_row is 3.*`show 5`"):
            steps.after(5, taken())
    assert [record["step"] for record in written(tmp_path) if record["step"] != 90] == [0, 1, 3, 4, 5]


def test_more_in_all_than_allowed_end_the_run(tmp_path):
    steps = make(tmp_path, limit=1)
    steps.after(1, taken())
    steps.after(2, taken(FINE))
    with pytest.raises(UserError, match=r"2 steps of this run .*training\.non_finite\.limit is 1"):
        steps.after(3, taken())


def test_counts_go_on_from_a_checkpoint_and_later_lines_are_cut(tmp_path):
    killed = make(tmp_path, limit_in_a_row=3)
    killed.after(0, taken(HALVED))
    killed.after(1, taken())
    state = json.loads(json.dumps(killed.state()))
    killed.after(2, taken())
    resumed = make(tmp_path, limit_in_a_row=3)
    resumed.resume(2, state)
    assert [record["step"] for record in written(tmp_path)] == [0, 1]
    resumed.after(2, taken())
    assert (resumed.not_finite, resumed.scale_too_high) == (2, 1)
    with pytest.raises(UserError, match="3 steps in a row"):
        resumed.after(3, taken())

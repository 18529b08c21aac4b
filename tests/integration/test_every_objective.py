"""Every objective and every head with two real ranks and ZeRO 2: killed, the same command gives the very same run."""

import json
import math

import pytest
import torch
from made_up_run import EVERYTHING, make_run
from test_kill_and_resume import copy_without_training, curve, start_two_ranks

from xlm.training.checkpoint import checkpoint_step, latest_checkpoint, load_model_weights

STEPS = sum(phase["steps"] for phase in EVERYTHING["phases"])
OF_PHASE = [sorted(phase["objectives"]) for phase in EVERYTHING["phases"]]


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    root = tmp_path_factory.mktemp("everything")
    recipe = make_run(root, EVERYTHING)
    codes, (printed, _) = start_two_ranks(recipe, root / "run", all_end=True)
    assert codes == [0, 0], printed
    return recipe, root / "run", printed


@pytest.mark.timeout(900)
def test_killed_in_the_middle_the_same_command_gives_the_same_run(unkilled, tmp_path):
    recipe, run = copy_without_training(unkilled, tmp_path)
    codes, printed = start_two_ranks(recipe, run, "step:1:16")
    assert codes[1] == -9, printed
    assert 0 < checkpoint_step(latest_checkpoint(run / "train")) < STEPS
    codes, printed = start_two_ranks(recipe, run, all_end=True)
    assert codes == [0, 0], printed
    assert curve(run) == curve(unkilled[1])
    found, wanted = (load_model_weights(latest_checkpoint(folder / "train")) for folder in (run, unkilled[1]))
    assert found.step == wanted.step == STEPS
    assert all(torch.equal(found.state_dict[name], wanted.state_dict[name]) for name in wanted.state_dict)


def test_every_objective_is_drawn_measured_and_seen(unkilled):
    lines = curve(unkilled[1])
    short, long = lines[0], lines[-1]
    assert {name for name in short if name.startswith("loss/") and name.count("/") == 1} == {
        f"loss/{name}" for name in (*OF_PHASE[0], "sop_sentence", "rtd_discriminator", "rtd_replaced")
    }
    assert {f"accuracy/{name}" for name in ("nsp", "nsp_sentence", "mlm", "rtd", "rtd_discriminator")} <= set(long)
    assert all(math.isfinite(value) for line in lines for name, value in line.items() if name.startswith(("loss", "accuracy")))
    about = json.loads((unkilled[1] / "train" / "stage.json").read_text(encoding="utf-8"))["summary"]
    assert [sorted(about["seen"][phase["name"]]) for phase in EVERYTHING["phases"]] == OF_PHASE
    assert all(of["rows"] == of["planned_rows"] > 0 for objectives in about["seen"].values() for of in objectives.values())
    assert "last accuracies: " in unkilled[2]

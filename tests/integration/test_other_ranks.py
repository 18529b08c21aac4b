"""The real pretraining, interrupted on two ranks at ZeRO stage 2, goes on in one process at stage 0."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_run import make_run

from xlm.training.checkpoint import checkpoint_step, complete_checkpoints
from xlm.training.training_log import OF_THE_MACHINE

# tests/training/test_engine_state.py shows the same without the pipeline around it in every run.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Without dropout, whose masks follow the ranks; one rank has to take all pairs of a step at once.
SETTINGS = ["model.dropout=0.0", "training.precision=fp32", "training.checkpoint.keep_last=9"]
ONE_RANK = ["training.micro_batch_tokens=384"]


def train(recipe, run, stage, ranks, settings):
    """Run the ranks to their end and return what rank 0 printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "MLFLOW_TRACKING_URI": "", "PYTHONPATH": str(ROOT)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_SIZE": str(ranks)}
    command = [sys.executable, str(ROOT / "pipelines" / "pretrain.py"), "--recipe", str(recipe), "--run-dir", str(run)]
    command += ["--deepspeed_config", str(ROOT / "deepspeed_configs" / f"zero{stage}.json")]
    command += [part for setting in settings for part in ("--set", setting)]
    started = [
        subprocess.Popen(
            command,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=run.parent,
        )
        for rank in range(ranks)
    ]
    try:
        printed = [rank.communicate(timeout=400)[0] for rank in started]
    finally:
        for rank in started:
            rank.kill()
    assert [rank.returncode for rank in started] == [0] * ranks, printed
    return printed[0]


def lines(run):
    text = (run / "train" / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def seen(run):
    return json.loads((run / "train" / "stage.json").read_text(encoding="utf-8"))["summary"]["seen"]


@pytest.mark.timeout(900)
def test_from_two_ranks_to_one_it_is_the_same_run(tmp_path):
    recipe, run = make_run(tmp_path), tmp_path / "run"
    train(recipe, run, 2, 2, SETTINGS)
    interrupted = tmp_path / "interrupted"
    shutil.copytree(run, interrupted)
    (interrupted / "train" / "stage.json").unlink()
    for path in complete_checkpoints(interrupted / "train"):
        if checkpoint_step(path) > 6:
            shutil.rmtree(path)

    printed = train(recipe, interrupted, 0, 1, [*SETTINGS, *ONE_RANK])
    note = "from 2 ranks at ZeRO stage 2 to 1 rank at ZeRO stage 0 and with another "
    assert printed.count(note) == 1, printed
    found, wanted = lines(interrupted), lines(run)
    assert [line["step"] for line in found] == [line["step"] for line in wanted] == [2, 4, 6, 8, 10, 12, 13]
    for one, other in zip(found, wanted, strict=True):
        assert set(one) == set(other)
        for name in set(one) - OF_THE_MACHINE:
            exact = one["step"] <= 6 or not isinstance(one[name], float)
            assert one[name] == (other[name] if exact else pytest.approx(other[name], rel=1e-4)), (one["step"], name)
        assert one["loss"] == pytest.approx(other["loss"], rel=2e-6)
    assert seen(interrupted) == seen(run)
    starts = json.loads((interrupted / "train" / "run.json").read_text(encoding="utf-8"))["starts"]
    assert [(start["world_size"], start["zero_stage"]) for start in starts] == [(2, 2), (1, 0)]

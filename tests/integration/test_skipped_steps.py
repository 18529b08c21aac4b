"""A run whose second phase learns far too fast: real batches that grow, real gradients that are not finite."""

import json
import os
import shlex
from pathlib import Path

import pytest
from made_up_run import RECIPE, make_run
from warm_scripts import WarmScript

ROOT = Path(__file__).parents[2]
SHORT, LONG = RECIPE["phases"]
DIVERGING = {
    **RECIPE,
    "phases": [SHORT, {**LONG, "learning_rate": 1e30}],
    "training": {
        **RECIPE["training"],
        "precision": "fp32",
        "micro_batch_tokens": 256,  # one rank holds all pairs of a step
        "optimizer": {"kind": "muon", "learning_rate": 0.003},
        "schedule": {"kind": "warmup_stable_decay", "warmup_steps": 2},
        "batch_warmup": {"start_tokens": 64, "steps": 6},
        "non_finite": {"limit_in_a_row": 3},
    },
}


def run(command, output):
    """Run a script; returns its exit code and all it printed."""
    script = WarmScript(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT, output=output)
    return script.wait(), output.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    root = tmp_path_factory.mktemp("diverged")
    recipe = make_run(root, DIVERGING)
    files = ["--recipe", str(recipe), "--run-dir", str(root / "run"), "--deepspeed_config", "deepspeed_configs/zero2.json"]
    return root / "run" / "train", *run(["pipelines/pretrain.py", *files], root / "printed")


def test_the_run_ends_with_a_sentence_that_names_steps(diverged):
    train, code, printed = diverged
    assert code == 2, printed
    assert "Traceback" not in printed
    assert "3 steps in a row were not finite (the latest: 8, 9, 10), and training.non_finite.limit_in_a_row is 3" in printed
    assert sorted(path.name for path in (train / "checkpoints").iterdir() if path.is_dir()) == ["step-00000006", "step-00000009"]


def test_every_skipped_batch_is_written_down_and_can_be_printed(diverged, tmp_path):
    train, *_ = diverged
    skipped = [json.loads(line) for line in (train / "skipped.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["step"] for record in skipped] == [8, 9, 10]
    assert {(record["phase"], record["scale_too_high"]) for record in skipped} == {("long", False)}
    command = shlex.split(skipped[0]["show_batch"])
    code, shown = run([*command[1:], "--json"], tmp_path / "shown")
    assert code == 0, shown
    assert json.loads(shown)["step"] == 8


def test_batches_grow_and_the_learning_rate_follows_the_phase(diverged):
    train, *_ = diverged
    lines = [json.loads(line) for line in (train / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rates = {line["step"]: line["learning_rate"] for line in lines}
    assert rates == pytest.approx({2: 0.002, 4: 0.003, 6: 0.003, 8: 1e30, 10: 1e30})
    # 64, 138, 213, 288, 362 and 437 tokens in rows of 32, then 512 in rows of 32, or of 64 from step 7 on.
    rows = {line["step"]: sum(line[f"rows/{name}"] for name in RECIPE["phases"][0]["objectives"]) for line in lines}
    assert rows == {2: 6, 4: 21, 6: 45, 8: 69, 10: 85}

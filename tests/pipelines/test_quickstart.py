"""The quickstart runs every stage in order, passes its options on, and stops at the first that fails."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from xlm.runs.cli import parse_invocation, recipe_parser

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "pipelines" / "recipes" / "smoke.yaml"
# Stands in for every stage: notes how it was called, and leaves its folder unless told to fail.
STAGE = """
import json, os, pathlib, sys
name = pathlib.Path(__file__).stem
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
with (pathlib.Path(__file__).parent / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps([name, sys.argv[1:], os.environ.get("OMP_WAIT_POLICY")]) + "\\n")
failing, _, code = os.environ.get("FAILING", "").partition(":")
if name == failing:
    sys.exit(int(code))
folder = run / FOLDERS[name]
folder.mkdir(parents=True, exist_ok=True)
(folder / "stage.json").write_text("{}")
if name == "report":
    summary = {"intents.probe": 31.5, "wall_s": 120.0, "peak_memory_bytes": 2**31}
    scores = {"summary": summary, "tasks": {}, "recipe": {"values": {}}}
    (run / "scores.json").write_text(json.dumps(scores))
"""
FOLDERS = {
    "build_tasks": "tasks",
    "build_corpus": "corpus",
    "build_vocab": "vocabulary",
    "build_shards": "shards",
    "init_embeddings": "embeddings",
    "pretrain": "train",
    "zero_shot": "zero_shot",
    "code_switching": "code_switching",
    "report": "figures",
}


@pytest.fixture
def quickstart() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipelines_quickstart", ROOT / "pipelines" / "quickstart.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def staged(quickstart: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The quickstart with stand-ins for its stages, pretraining without the launcher."""
    for name in FOLDERS:
        (tmp_path / f"{name}.py").write_text(STAGE.replace("FOLDERS", repr(FOLDERS)), encoding="utf-8")
    plan = quickstart.planned_steps
    monkeypatch.setattr(quickstart, "HERE", tmp_path)
    monkeypatch.setattr(quickstart, "planned_steps", lambda call: [dataclasses.replace(step, launched=False) for step in plan(call)])
    monkeypatch.setattr(quickstart, "interrupt_when_terminated", lambda: None)
    arguments = ["quickstart.py", "--recipe", str(RECIPE), "--run-dir", str(tmp_path / "run"), "--set", "seed=7"]
    arguments += ["--deepspeed_config", str(ROOT / "deepspeed_configs" / "zero2.json")]
    monkeypatch.setattr(sys, "argv", arguments)
    return quickstart


def calls(folder: Path) -> list[list]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_stage_runs_in_order_with_the_same_options(
    staged: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    staged.main()
    made = calls(tmp_path)
    assert [name for name, _, _ in made] == list(FOLDERS)
    options = ["--recipe", str(RECIPE), "--set", "seed=7", "--run-dir", str(tmp_path / "run")]
    assert all(arguments == options and policy == "PASSIVE" for _, arguments, policy in made)
    shown = capfd.readouterr().out
    assert "[3/9] vocabulary" in shown
    assert "2.0 minutes in all, 2.0 GiB at most" in shown
    assert "mlflow" in shown
    assert str(tmp_path / "run" / "report.html") in shown


@pytest.mark.parametrize(
    ("code", "words"), [(2, "put right what the error above names"), (9, "failed with exit code 9"), (247, "killed (signal 9)")]
)
def test_the_first_failure_stops_with_its_code(
    staged: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    monkeypatch.setenv("FAILING", f"build_vocab:{code}")
    with pytest.raises(SystemExit) as stopped:
        staged.main()
    assert stopped.value.code == code
    assert [name for name, _, _ in calls(tmp_path)][-1] == "build_vocab"
    assert words in capfd.readouterr().err


def test_a_stage_that_leaves_nothing_has_failed_whatever_it_returns(
    staged: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "pretrain:0")
    with pytest.raises(SystemExit) as stopped:
        staged.main()
    assert stopped.value.code == 1
    assert [name for name, _, _ in calls(tmp_path)][-1] == "pretrain"


@pytest.mark.parametrize(
    ("option", "value", "words"), [("--set", "model.wdth=64", "did you mean 'width'?"), ("--ranks", "0", "at least one")]
)
def test_a_wrong_option_stops_before_anything_runs(
    staged: ModuleType,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    value: str,
    words: str,
) -> None:
    monkeypatch.setattr(sys, "argv", [*sys.argv, option, value])
    with pytest.raises(SystemExit) as stopped:
        staged.main()
    assert stopped.value.code == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / "calls.jsonl").exists()


def test_pretraining_goes_through_the_launcher(quickstart: ModuleType) -> None:
    parser = recipe_parser("")
    parser.add_argument("--deepspeed_config", default="deepspeed_configs/zero2.json")
    call = parse_invocation(parser, ["--recipe", str(RECIPE)])
    steps = {step.script: step for step in quickstart.planned_steps(call)}
    command = quickstart.step_command(steps["pretrain.py"], call.arguments, ranks=2)
    assert Path(command[1]).name == "deepspeed"
    assert command[command.index("--num_accelerators") + 1] == "2"
    assert 1024 < int(command[command.index("--master_port") + 1]) < 65536
    assert command[-2:] == ["--deepspeed_config", "deepspeed_configs/zero2.json"]
    assert [step.script for step in steps.values() if step.launched] == ["pretrain.py"]


def test_without_tasks_nothing_is_scored_and_random_embeddings_need_no_stage(quickstart: ModuleType) -> None:
    call = parse_invocation(recipe_parser(""), ["--recipe", str(RECIPE), "--set", "tasks=null", "--set", "embeddings={kind: random}"])
    scripts = [step.script for step in quickstart.planned_steps(call)]
    assert scripts == ["build_corpus.py", "build_vocab.py", "build_shards.py", "pretrain.py", "report.py"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "corpora.manifest=none.yaml"], "none.yaml: this file does not exist"),
        (["--set", "vocabulary=none.yaml"], "none.yaml: this file does not exist"),
        (["--deepspeed_config", "none.json"], "none.json: this DeepSpeed file does not exist"),
    ],
)
def test_missing_files_are_said_before_the_first_stage(staged, tmp_path, monkeypatch, capsys, arguments, words) -> None:
    monkeypatch.setattr(sys, "argv", ["quickstart.py", "--recipe", str(RECIPE), "--run-dir", str(tmp_path / "run"), *arguments])
    with pytest.raises(SystemExit) as ended:
        staged.main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

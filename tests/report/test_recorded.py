"""A report is of the recipe that its numbers were made under, and the command it gives makes the same run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.report.recorded import SCORED_SECTIONS, check_recorded_recipe, command_again
from xlm.runs.cli import RUNS, Invocation
from xlm.runs.fingerprint import fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.stage import write_json
from xlm.training.run_record import RunRecord, training_recipe, write_run_record

ROOT = Path(__file__).resolve().parents[2]
RECIPE, CONFIGS = ROOT / "pipelines" / "recipes" / "quickstart.yaml", ROOT / "deepspeed_configs"


def record_inputs(folder: Path, **inputs: str) -> None:
    """Change what a stage recorded."""
    record = json.loads((folder / "stage.json").read_text(encoding="utf-8"))
    write_json(folder / "stage.json", record | {"inputs": record["inputs"] | inputs})


def record_training(recipe: Recipe, run: RunFolder, *, ranks: int = 2, config: str = "zero2.json") -> None:
    """Record a training of this recipe."""
    record = RunRecord(training_recipe(recipe), "", {}, "bf16", ranks, {}, ("en",), "key", "code", {})
    write_run_record(run.train, record)
    record_inputs(run.train, deepspeed=fingerprint(json.loads((CONFIGS / config).read_text(encoding="utf-8"))))


@pytest.fixture
def recorded_run(recipe: Recipe, finished_run: RunFolder) -> RunFolder:
    record_training(recipe, finished_run)
    for name, sections in SCORED_SECTIONS.items():
        record_inputs(finished_run.root / name, recipe=fingerprint(recipe.model_dump(mode="json", include=set(sections))))
    record_inputs(finished_run.corpus, tasks="0123456789abcdef")
    return finished_run


def with_overrides(*overrides: str) -> Recipe:
    return load_config(Recipe, RECIPE, ["phases.0.steps=300", *overrides])


@pytest.mark.parametrize("override", ["name=other", "training.log_every_steps=7", "training.precision=bf16"])
def test_the_runs_own_recipe_is_taken(recorded_run: RunFolder, override: str) -> None:
    check_recorded_recipe(with_overrides(override), recorded_run)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed=5", "was trained with seed = 1, the recipe now says 5"),
        ("phases.0.steps=299", "phases.0.steps = 300, the recipe now says 299"),
        ("model.layers=3", "model.layers"),
        ("embeddings.scale=0.7", "embeddings.scale"),
        ("training.optimizer.learning_rate=0.5", "learning_rate"),
        ("training.precision=fp32", "was trained in bf16, the recipe now says fp32"),
        ("evaluation.seeds=[1, 2]", "under other values of embeddings, evaluation, model, seed, tasks than the recipe has now"),
        ("tasks.seed=5", "zero_shot.py with these"),
        ("tasks=null", "made with test sets kept out, and the recipe now has no tasks"),
    ],
)
def test_another_recipe_than_the_numbers_were_made_under_is_refused(recorded_run: RunFolder, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence.replace(".", r"\.")):
        check_recorded_recipe(with_overrides(override), recorded_run)


def test_code_switching_scores_count_too(recipe: Recipe, recorded_run: RunFolder) -> None:
    record_inputs(recorded_run.code_switching, recipe="another")
    with pytest.raises(UserError, match=r"run pipelines/code_switching\.py with these"):
        check_recorded_recipe(recipe, recorded_run)


@pytest.mark.parametrize("name", sorted(SCORED_SECTIONS))
def test_the_sections_are_those_that_the_scoring_script_records(name: str) -> None:
    script = (ROOT / "pipelines" / f"{name}.py").read_text(encoding="utf-8")
    _, _, listed = script.partition("include={")
    assert {part.strip(' "') for part in listed.partition("}")[0].split(",")} == SCORED_SECTIONS[name]


def invocation(recipe: Recipe, run: RunFolder, *overrides: str) -> Invocation:
    return Invocation(recipe, Path("pipelines/recipes/quickstart.yaml"), run, argparse.Namespace(set=list(overrides), run_dir=None))


def test_the_command_of_a_run_with_defaults_is_short(
    recipe: Recipe, recorded_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RUNS.mkdir()
    default = recorded_run.root.rename(RUNS / recipe.name)
    command = command_again(invocation(recipe, RunFolder(default), "seed=1"), CONFIGS)
    assert command == "python pipelines/quickstart.py --recipe pipelines/recipes/quickstart.yaml --set seed=1"


def test_the_command_names_folder_ranks_and_settings_that_are_not_the_defaults(recipe: Recipe, recorded_run: RunFolder) -> None:
    record_training(recipe, recorded_run, ranks=1, config="zero1.json")
    command = command_again(invocation(recipe, recorded_run, "evaluation.seeds=[1, 2]"), CONFIGS)
    assert "--set 'evaluation.seeds=[1, 2]'" in command
    assert command.endswith(f" --run-dir {recorded_run.root} --ranks 1 --deepspeed_config deepspeed_configs/zero1.json")


def test_no_command_where_the_settings_are_not_known(recipe: Recipe, recorded_run: RunFolder) -> None:
    record_inputs(recorded_run.train, deepspeed="another")
    assert command_again(invocation(recipe, recorded_run), CONFIGS) == ""
    record_training(recipe, recorded_run)
    (recorded_run.train / "run.json").unlink()
    assert command_again(invocation(recipe, recorded_run), CONFIGS) == ""

"""The joined scores hold every number that the stages left, and refuse runs that are not complete."""

from __future__ import annotations

import json

import pytest

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.report.summary import join_scores, package_versions, read_json
from xlm.runs.folder import RunFolder
from xlm.runs.lineage import STAGES, stage_records
from xlm.runs.stage import write_json

REQUIRED = (
    "intents.probe",
    "intents.finetuned",
    "intents.character_floor",
    "intents.random_encoder",
    "retrieval.top1_200",
    "retrieval.top1_2000",
    "tokens_per_second",
    "wall_s",
    "peak_memory_bytes",
)


def test_the_summary_has_the_required_figures(recipe: Recipe, finished_run: RunFolder) -> None:
    summary = join_scores(recipe, finished_run)["summary"]
    assert all(isinstance(summary[name], int | float) for name in REQUIRED)
    records = stage_records(finished_run)
    assert tuple(records) == STAGES
    assert summary["wall_s"] == pytest.approx(sum(record.wall_s for record in records.values()))
    assert summary["peak_memory_bytes"] == records["train"].peak_memory_bytes == int(3.4 * 2**30)


def test_scores_are_kept_as_the_stages_wrote_them(recipe: Recipe, finished_run: RunFolder) -> None:
    joined = join_scores(recipe, finished_run)
    written = json.loads((finished_run.zero_shot / "scores.json").read_text(encoding="utf-8"))
    assert joined["tasks"]["intents"] == written["intents"]
    assert joined["tasks"]["retrieval"] == written["retrieval"]
    assert set(joined["tasks"]["intents"]["languages"]["de"]["systems"]["probe"]["seeds"]) == {"1", "2", "3"}
    assert joined["training"]["tokens_by_language"]["en"] > joined["training"]["tokens_by_language"]["hi"]
    assert joined["recipe"]["values"]["phases"][0]["steps"] == recipe.phases[0].steps


def test_another_recipe_has_another_fingerprint(recipe: Recipe, finished_run: RunFolder) -> None:
    other = recipe.model_copy(update={"seed": recipe.seed + 1})
    first, second = (join_scores(each, finished_run)["recipe"]["fingerprint"] for each in (recipe, other))
    assert first != second


def test_an_untrained_run_is_refused(recipe: Recipe, finished_run: RunFolder) -> None:
    finished_run.train.rename(finished_run.root / "elsewhere")
    with pytest.raises(UserError, match=r"no finished training; run pipelines/pretrain\.py"):
        join_scores(recipe, finished_run)


def test_missing_scores_are_refused_where_the_recipe_declares_tasks(recipe: Recipe, finished_run: RunFolder) -> None:
    (finished_run.zero_shot / "scores.json").unlink()
    with pytest.raises(UserError, match="missing; run the stage"):
        join_scores(recipe, finished_run)


def test_scores_of_an_earlier_recipe_are_left_out_where_this_one_has_no_tasks(recipe: Recipe, finished_run: RunFolder) -> None:
    without = join_scores(recipe.model_copy(update={"tasks": None}), finished_run)
    assert without["tasks"]["intents"] is None
    assert "intents.probe" not in without["summary"]
    assert "zero_shot" not in without["stages"]


@pytest.mark.parametrize(("found", "fits"), [("stage", True), ("content", True), ("another", False)])
def test_stages_that_do_not_belong_together_are_refused(recipe: Recipe, finished_run: RunFolder, found: str, fits: bool) -> None:
    vocabulary = json.loads((finished_run.vocabulary / "stage.json").read_text(encoding="utf-8"))
    write_json(finished_run.vocabulary / "stage.json", vocabulary | {"summary": {"fingerprint": "content"}})
    shards = json.loads((finished_run.shards / "stage.json").read_text(encoding="utf-8"))
    given = vocabulary["fingerprint"] if found == "stage" else found
    write_json(finished_run.shards / "stage.json", shards | {"inputs": {"vocabulary": given}})
    if fits:
        join_scores(recipe, finished_run)
    else:
        with pytest.raises(UserError, match="'shards' was made from another 'vocabulary'"):
            join_scores(recipe, finished_run)


@pytest.mark.parametrize("text", ["{", "[1, 2]"])
def test_a_damaged_score_file_is_one_sentence(finished_run: RunFolder, text: str) -> None:
    path = finished_run.zero_shot / "scores.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"scores\.json.*run its stage again"):
        read_json(path, required=True)


def test_versions_name_what_can_change_a_score() -> None:
    versions = package_versions()
    assert {"python", "torch", "deepspeed", "sentencepiece", "numpy", "scikit-learn"} <= set(versions)

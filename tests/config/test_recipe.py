"""The recipes that ship are valid, and what they promise holds."""

from pathlib import Path

import pytest
import yaml

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError

RECIPES = sorted((Path(__file__).parents[2] / "pipelines" / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes_load_and_are_named_after_their_file(path):
    recipe = load_config(Recipe, path)
    assert recipe.name == path.stem
    assert recipe.total_steps == sum(phase.steps for phase in recipe.phases)
    root = path.parents[2]
    assert (root / recipe.corpora.manifest).is_file()
    assert (root / recipe.vocabulary).is_file()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("phases.0.objectives.mlm.share=0.9", "sum to"),
        ("phases.0.sampling.kind=magic", "temperature"),
        ("phases.0.objectives={nspp: {share: 1}}", "nsp"),
        ("embeddings.kind=random", "unknown key 'embeddings.scale'; allowed here: kind."),
        ("embeddings=null", "'embeddings': keys with values are expected here (found None)"),
        ("seed=-1", "greater than or equal to 0"),
        ("tasks.languages=[English]", "pattern"),
        ("model.heads=7", "not divisible by heads 7"),
        ("model.norm_position=post", "final_norm"),
        ("training.learning_rate=1", "unknown key"),
        ("training.optimizer.learning_rate=.inf", "finite"),
        ("training.optimizer.betas=[0.9, 1.0]", "less than 1"),
        ("phases.0.sequence_length=512", "rows of 512 tokens, but model.max_positions is 128"),
        ("training.micro_batch_tokens=10", "training.micro_batch_tokens is 10, less than one row of 128 tokens"),
        ("training.tokens_per_step=10", "less than one row"),
        ("training.batch_warmup={start_tokens: 10, steps: 5}", "batch_warmup.start_tokens is 10, less than one row of 128 tokens"),
        ("training.batch_warmup={start_tokens: 100000000, steps: 5}", "where batches stop growing"),
        ("evaluation.seeds=[]", "at least 1"),
        ("evaluation.seeds=[1, 1]", "stands twice"),
        ("evaluation.probe_penalties=[0]", "greater than 0"),
        ("evaluation.finetune_learning_rates=[]", "at least 1"),
        ("evaluation.mean_languages=[sw]", "evaluation.mean_languages asks for sw, which tasks.languages does not name"),
        ("evaluation.layers=[]", "at least 1"),
        ("tasks.languages=[en, en]", "stands twice"),
        ("start_from=models/base", "start_from brings token embeddings"),
    ],
)
def test_what_does_not_fit_is_said(override, words):
    path = next(path for path in RECIPES if path.stem == "quickstart")
    with pytest.raises(UserError) as raised:
        load_config(Recipe, path, [override])
    assert words in str(raised.value)


def test_the_width_has_rules_for_adamw_alone():
    path = next(path for path in RECIPES if path.stem == "quickstart")
    scaled = ["model.width_scaling={base_width: 8, base_heads: 1}", "training.optimizer.kind=muon"]
    with pytest.raises(UserError, match="the steps of muon follow it otherwise"):
        load_config(Recipe, path, scaled)


def test_phases_need_distinct_names(tmp_path):
    data = yaml.safe_load(RECIPES[0].read_text(encoding="utf-8"))
    data["phases"] = data["phases"][:1] * 2
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(UserError, match="same name"):
        load_config(Recipe, path)

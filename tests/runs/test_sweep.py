from pathlib import Path

import pytest
import yaml

from xlm.errors import UserError
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage
from xlm.runs.sweep import earlier_values, link_stages, make_grid, split_values

RECIPE = {
    "name": "base",
    "seed": 1,
    "corpora": {"manifest": "m.yaml"},
    "vocabulary": "v.yaml",
    "embeddings": {"kind": "random"},
    "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "max_positions": 64},
    "phases": [
        {
            "name": "only",
            "steps": 4,
            "sequence_length": 32,
            "sampling": {"kind": "temperature", "alpha": 0.7},
            "objectives": {"mlm": {"share": 1}},
        }
    ],
    "training": {"tokens_per_step": 512, "micro_batch_tokens": 512, "optimizer": {"learning_rate": 0.001}},
}


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,3", ["1", "2", "3"]),
        ("1e-3, 2e-3", ["1e-3", "2e-3"]),
        ("[0.9, 0.98],[0.9, 0.999]", ["[0.9, 0.98]", "[0.9, 0.999]"]),
        ("{kind: linear, warmup_steps: 2},{kind: constant}", ["{kind: linear, warmup_steps: 2}", "{kind: constant}"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("it's,that", ["it's", "that"]),
    ],
)
def test_values_are_split_outside_brackets_and_quotes(text, values):
    assert split_values(text) == values


@pytest.mark.parametrize("text", ["[1,2", "1]", '"a,b', "1,,2", "1,1", ","])
def test_what_is_no_list_of_values_is_a_sentence(text):
    with pytest.raises(UserError):
        split_values(text)


def test_a_grid_is_every_combination_in_order(recipe):
    base, points = make_grid(
        recipe, ["training.optimizer.learning_rate=1e-3,2e-3", "phases.0.steps=7", "training.optimizer.betas=[0.9, 0.98],[0.9, 0.95]"]
    )
    assert base.total_steps == 7
    assert [(p.recipe.training.optimizer.learning_rate, p.recipe.training.optimizer.betas) for p in points] == [
        (0.001, (0.9, 0.98)),
        (0.001, (0.9, 0.95)),
        (0.002, (0.9, 0.98)),
        (0.002, (0.9, 0.95)),
    ]
    assert {point.recipe.total_steps for point in points} == {7}
    names = [point.name for point in points]
    assert len(set(names)) == 4
    assert all(name.startswith("learning_rate=") and not set(name) & set("[] ,/") for name in names)
    assert points[1].overrides == (
        "phases.0.steps=7",
        "training.optimizer.learning_rate=1e-3",
        "training.optimizer.betas=[0.9, 0.95]",
    )


def test_names_tell_keys_with_the_same_end_apart(recipe):
    _, points = make_grid(recipe, ["phases.0.steps=3,4", "training.schedule.warmup_steps=0,1"])
    assert points[0].name == "steps=3_warmup_steps=0"
    _, points = make_grid(recipe, ["training.contrastive.momentum=0.5,0.9", "training.loader.workers=0"])
    assert [point.name for point in points] == ["momentum=0.5", "momentum=0.9"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["seed=1,2"], "point seed=2 would change 'seed', which the stage 'shards' (build_shards.py) depends on"),
        (["vocabulary=v.yaml,w.yaml"], "'vocabulary' (build_vocab.py)"),
        (["shards.variants=1,2"], "would change 'shards'"),
        (["embeddings.kind=random,aligned"], "init_embeddings.py"),
        (["model.layers=2"], "nothing is swept"),
        (["model.layers=1,2", "model.layers=3,4"], "given twice"),
        (["model.layers=1,01"], "are the same recipe"),
        (["model.layer=1,2"], "did you mean 'layers'"),
        (["model.layers"], "not of the form"),
    ],
)
def test_what_cannot_be_swept_is_a_sentence(recipe, settings, sentence):
    with pytest.raises(UserError) as error:
        make_grid(recipe, [*settings, "training.log_every_steps=5"])
    assert sentence in str(error.value)


def test_aligned_embeddings_hold_the_width_still(recipe):
    settings = ["embeddings={kind: aligned}"]
    make_grid(recipe, [*settings, "model.layers=1,2"])
    with pytest.raises(UserError, match="would change 'embeddings'"):
        make_grid(recipe, [*settings, "model.width=16,32"])


def test_the_order_of_rows_may_be_swept(recipe):
    base, points = make_grid(recipe, ["shards.shuffle_window=1,2"])
    assert all(earlier_values(point.recipe) == earlier_values(base) for point in points)


def write_stage(folder, name):
    with Stage(folder / name, name, {"made": "up"}).write() as output:
        (output.folder / "data").write_text(name, encoding="utf-8")


def test_points_share_the_stages_and_never_harm_them(tmp_path):
    base, point = RunFolder(tmp_path / "runs" / "base"), RunFolder(tmp_path / "runs" / "sweep" / "a=1")
    with pytest.raises(UserError, match=r"build_vocab\.py"):
        link_stages(base, point)
    for name in ("corpus", "vocabulary", "shards"):
        write_stage(base.root, name)
    for _ in range(2):
        link_stages(base, point)
    assert sorted(path.name for path in point.root.iterdir()) == ["corpus", "shards", "vocabulary"]
    assert (point.shards / "data").read_text() == "shards"
    assert not Path(point.shards.readlink()).is_absolute()
    write_stage(point.root, "shards")  # a stage that is run in the point itself replaces the link
    assert not point.shards.is_symlink()
    assert (base.shards / "data").read_text() == "shards"
    with pytest.raises(UserError, match="another --sweep-dir"):
        link_stages(base, point)

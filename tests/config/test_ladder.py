from pathlib import Path

import pytest

from xlm.config.ladder import load_ladder
from xlm.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
LADDER = """recipe: {recipe}
seeds: [1, 2]
rungs:
  - {{name: one, title: One, set: ["phases.0.objectives={{mlm: {{share: 1}}}}"]}}
  - {{name: two, title: Two}}
""".format(recipe=ROOT / "pipelines" / "recipes" / "quickstart.yaml")


def load(tmp_path, text):
    path = tmp_path / "ladder.yaml"
    path.write_text(text, encoding="utf-8")
    return load_ladder(path)


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines" / "ladders").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_ladders_of_this_project_hold(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    ladder, recipes = load_ladder(path)
    assert set(recipes) == {one.name for one in (*ladder.rungs, *ladder.beside)}
    assert len(ladder.seeds) >= 3
    assert all(one.recipe.is_file() for one in ladder.beside)


def test_rungs_and_seeds_are_read(tmp_path):
    ladder, recipes = load(tmp_path, LADDER)
    assert set(recipes["one"].phases[0].objectives) == {"mlm"}
    assert [rung.name for rung in ladder.rungs] == ["one", "two"]
    assert ladder.seeds == (1, 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name: two", "name: one"), "two runs would be named 'one-seed1'"),
        (("name: two", "name: shared"), "'shared' is the name of a folder"),
        (("[1, 2]", "[1, 1]"), "a seed stands twice"),
        (("[1, 2]", "[1]"), "at least 2 items"),
        (("[1, 2]", "[-1, 2]"), "greater than or equal to 0"),
        (("title: Two", 'title: Two, set: ["seed=4"]'), "rung 'two' sets the seed"),
        (("title: Two", 'title: Two, set: ["phases.0.steps=10"]'), "rung 'two' has another total_steps than 'one': not the same tokens"),
        (("title: Two", 'title: Two, set: ["training.batch_warmup={start_tokens: 4096, steps: 10}"]'), "another training.batch_warmup"),
        (("title: Two", 'title: Two, set: ["evaluation.seeds=[4]"]'), "'two' has another evaluation section than 'one'"),
        (("title: Two", 'title: Two, set: ["phases.0.stepz=10"]'), "unknown key"),
        (("title: Two", "titel: Two"), "did you mean 'title'"),
    ],
)
def test_what_would_not_be_compared_fairly_is_one_sentence(tmp_path, change, sentence):
    assert change[0] in LADDER
    with pytest.raises(UserError, match=sentence):
        load(tmp_path, LADDER.replace(*change))


def test_rungs_without_tasks_or_means_are_no_ladder(tmp_path):
    text = LADDER.replace("title: Two", 'title: Two, set: ["tasks=null"]').replace('set: ["phases', 'set: ["tasks=null", "phases')
    with pytest.raises(UserError, match="compares means of tasks"):
        load(tmp_path, text)
    with pytest.raises(UserError, match="compares means of tasks"):
        load(tmp_path, LADDER.replace('set: ["phases', 'set: ["evaluation.mean_languages=[]", "phases'))


def test_what_stands_beside_is_read_first(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        load(tmp_path, LADDER + "beside:\n  - {name: hour, title: Hour, recipe: nowhere.yaml}\n")
    smoke = ROOT / "pipelines" / "recipes" / "smoke.yaml"
    with pytest.raises(UserError, match="'smoke' has another tasks section than 'one'"):
        load(tmp_path, LADDER + f"beside:\n  - {{name: smoke, title: Small, recipe: {smoke}}}\n")

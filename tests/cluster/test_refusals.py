"""What differs between hosts is found before step 0, and named with the host."""

import importlib.metadata
import re
import shutil

import pytest
from training import ROOT, by_hand, started_together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    root = tmp_path_factory.mktemp("refused")
    shutil.copytree(made, root, dirs_exist_ok=True)
    return root / "run"


@pytest.fixture
def otherwise(rack, tmp_path):
    """Have birch alone see another text in place of a file, or another folder."""
    bound = []

    def bind(target, change):
        other = tmp_path / f"other{len(bound)}"
        if change is None:
            other.mkdir()
        else:
            other.write_text(change(target.read_text(encoding="utf-8")), encoding="utf-8")
        rack[1].bind(other, target)
        bound.append(target)

    yield bind
    for target in bound:
        rack[1].unbind(target)


def refused(rack, run):
    ranks = by_hand([rack[0], rack[1]], run.parent / "recipe.yaml", run)
    assert [rank.wait() for rank in ranks] == [2, 2], ranks[0].printed + ranks[1].printed
    assert not list(run.glob("train/checkpoints/step-*"))
    return ranks[0].printed, started_together(ranks)


def test_an_older_package_other_code_and_another_recipe_are_a_table(rack, run, otherwise):
    metadata = next(file for file in importlib.metadata.files("numpy") if file.name == "METADATA").locate()
    otherwise(metadata, lambda text: re.sub(r"(?m)^Version: .*$", "Version: 1.26.0", text, count=1))
    otherwise(ROOT / "xlm" / "training" / "schedule.py", lambda text: text + "# edited\n")
    otherwise(run.parent / "recipe.yaml", lambda text: text.replace("learning_rate: 0.003", "learning_rate: 0.004"))
    printed, sentence = refused(rack, run)
    rows = [line.split() for line in printed.splitlines() if re.search(r"\bbirch +1\b", line)]
    here = importlib.metadata.version("numpy")
    assert ["numpy", "birch", "1", "1.26.0", here] in rows
    assert ["training.optimizer.learning_rate", "birch", "1", "0.004", "0.003"] in rows
    assert any(row[0] == "code" for row in rows)
    assert len(rows) == 3
    assert re.match(r"error: birch \(rank 1\) has code \w+, most have \w+ \(2 more in the table above\)", sentence), sentence


def test_shards_that_are_not_there(rack, run, otherwise):
    otherwise(run / "shards", None)
    _, sentence = refused(rack, run)
    assert re.match(r"error: rank 1 on birch: .*the stage that writes 'shards' has not finished", sentence), sentence


def test_a_run_folder_that_hosts_do_not_share(rack, run, otherwise, tmp_path):
    shutil.copytree(run, tmp_path / "own")
    rack[1].bind(tmp_path / "own", run)
    try:
        _, sentence = refused(rack, run)
    finally:
        rack[1].unbind(run)
    assert sentence.startswith("error: birch (rank 1) does not see the run folder of rank 0"), sentence


def test_a_recipe_that_is_not_there(rack, run, otherwise):
    recipe = run.parent / "recipe.yaml"
    otherwise(recipe, lambda text: "name: [\n")
    _, sentence = refused(rack, run)
    assert sentence.startswith(f"error: rank 1 on birch: {recipe}:"), sentence

"""Two hosts train as two ranks of one host do, and a mistake on one of them is named: the smallest tests, run with all others."""

import re
import shutil

import pytest
from made_up_run import RECIPE, write_recipe, write_vocabulary
from training import by_hand, curve, started_together

from xlm.runs.folder import RunFolder

pytestmark = pytest.mark.timeout(1800)
SHORT = {**RECIPE, "training": {**RECIPE["training"], "precision": "fp32"}}


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    root = tmp_path_factory.mktemp("two hosts")
    shutil.copytree(made / "run", root / "run")
    write_recipe(root / "recipe.yaml", SHORT)
    return root / "run"


def test_two_hosts_train_as_two_ranks_of_one_host_do(rack, run, tmp_path):
    recipe = run.parent / "recipe.yaml"
    ranks = by_hand([rack[0], rack[1]], recipe, run)
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].printed + ranks[1].printed
    assert "pretraining: 2 ranks on alder (rank 0) and birch (rank 1); 4 MB summed over them in" in ranks[0].printed
    assert "pretraining" not in ranks[1].printed
    apart = curve(run)
    shutil.move(run / "train", tmp_path / "apart")
    ranks = by_hand([rack[0], rack[0]], recipe, run)
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].printed + ranks[1].printed
    assert apart == curve(run)
    assert [line["step"] for line in apart] == [2, 4, 6, 8, 10, 12, 13]
    shutil.rmtree(run / "train")


def test_a_vocabulary_that_one_host_has_otherwise_is_named_with_the_host(rack, run, tmp_path):
    other = write_vocabulary(RunFolder(tmp_path / "other"), seed=2)
    rack[1].bind(RunFolder(tmp_path / "other").vocabulary, RunFolder(run).vocabulary)
    try:
        ranks = by_hand([rack[0], rack[1]], run.parent / "recipe.yaml", run)
        assert [rank.wait() for rank in ranks] == [2, 2], ranks[0].printed + ranks[1].printed
    finally:
        rack[1].unbind(RunFolder(run).vocabulary)
    sentence = started_together(ranks)
    assert re.match(r"error: rank 1 on birch: .*vocabulary", sentence), sentence
    assert other.fingerprint in sentence
    assert not (run / "train").exists()

"""The scale benchmark in small: 200 languages, everything that it measures, nothing of how fast."""

import importlib.util
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from xlm.mixing import plateaus

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def scale_module():
    sys.path.insert(0, str(FOLDER))  # the benchmark imports its neighbour
    try:
        spec = importlib.util.spec_from_file_location("scale", FOLDER / "scale.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["scale"] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("scale", None)


@pytest.fixture(scope="module")
def scale(scale_module):
    return scale_module.Scale(
        languages=200, largest=10**10, tokens=3 * 10**10, ranks=64, tokens_per_step=1 << 20, shard_tokens=1_000_000, lengths=(1024, 2048)
    )


@pytest.fixture(scope="module")
def folder(scale, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    scale.index().save(folder)
    return folder


def test_sizes_follow_a_power_law_between_their_ends(scale):
    sizes = scale.sizes()
    assert (sizes[0], sizes[-1], len(set(scale.names()))) == (10**10, 10**3, 200)
    assert sizes == sorted(sizes, reverse=True)


def test_a_run_is_planned_and_its_caps_bind(scale_module, scale, folder):
    found = scale_module.plan_run(scale, folder)
    assert found["steps"] == 28_610
    assert found["most_epochs"] <= 5
    assert found["caps_that_bind"] > 100


def test_no_row_comes_twice_in_an_epoch(scale_module, scale, folder):
    found = scale_module.check_rows(scale, folder, batches=20, most_rows=30_000)
    assert found["batch_rows_checked"] == 3 * 20 * (1024 + 512 + 512)
    assert found["whole_epochs"] > 50
    assert found["sampled_epochs"] > 0


def test_shares_are_exact(scale_module, scale, folder):
    found = scale_module.check_shares(scale, folder, samples=60)
    assert found["worst_rows_from_exact"] < 2
    assert found["at_cap"] > 100


@pytest.mark.parametrize(("factor", "measure"), [(Fraction(4, 5), "check_shares"), (Fraction(6, 5), "plan_run")])
def test_caps_that_bind_elsewhere_are_noticed(scale_module, scale, folder, monkeypatch, factor, measure):
    limits = plateaus._limits

    def moved(phase, plans):
        return {leaf: replace(limit, max_epochs=limit.max_epochs * factor) for leaf, limit in limits(phase, plans).items()}

    monkeypatch.setattr(plateaus, "_limits", moved)
    with pytest.raises(SystemExit, match=r"rows before a cap|under a cap of 5"):
        getattr(scale_module, measure)(scale, folder)


def test_exact_shares_stop_where_there_is_no_room(scale_module):
    weights, room = np.array([1, 2, 0, 1], dtype=np.longdouble), np.array([5, 1000, 1000, 20], dtype=np.longdouble)
    assert scale_module.filled(weights, room, 8).tolist() == [2, 4, 0, 2]
    assert scale_module.filled(weights, room, 35).tolist() == [5, 20, 0, 10]
    assert scale_module.filled(weights, room, 125).tolist() == [5, 100, 0, 20]


def test_ranks_share_a_batch(scale_module, scale, folder):
    assert [scale_module.start_rank(scale, folder, rank, 12_345)["rows"] for rank in (0, 31, 63)] == [16, 16, 16]


def test_fetches_of_nodes_are_within_their_bound(scale_module, scale, folder):
    for found in scale_module.count_fetches(scale, folder, batches=30):
        assert found["nodes"] == 8
        assert 1 <= found["most_of_a_corpus"] <= 8
        assert found["new_per_batch_worst"] <= found["read_per_batch_worst"]
        # Most of what a node reads it has read for the batch before.
        assert found["new_per_batch_mean"] < found["read_per_batch_mean"] / 2


def test_rows_from_everywhere_are_noticed(scale_module, scale, folder, monkeypatch):
    of_window = scale_module.Scale.recipe
    monkeypatch.setattr(scale_module.Scale, "recipe", lambda self, window: of_window(self, window=None))
    with pytest.raises(SystemExit, match="blocks of one corpus"):
        scale_module.count_fetches(scale, folder, batches=2)

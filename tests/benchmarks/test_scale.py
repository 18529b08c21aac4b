"""The scale benchmark in small: 200 languages, everything that it measures, nothing of how fast."""

import importlib.util
import sys
from pathlib import Path

import pytest

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
    assert scale_module.check_shares(scale, folder, samples=60)["worst_rows_from_exact"] < 2


def test_ranks_share_a_batch(scale_module, scale, folder):
    assert [scale_module.start_rank(scale, folder, rank, 12_345)["rows"] for rank in (0, 31, 63)] == [16, 16, 16]


def test_fetches_of_nodes_are_within_their_bound(scale_module, scale, folder):
    for found in scale_module.count_fetches(scale, folder, batches=30):
        assert found["nodes"] == 8
        assert found["read_per_batch_worst"] <= found["rows_of_a_node"]
        assert found["new_per_batch_worst"] <= found["read_per_batch_worst"]
        # Most of what a node reads it has read for the batch before.
        assert found["new_per_batch_mean"] < found["read_per_batch_mean"] / 2

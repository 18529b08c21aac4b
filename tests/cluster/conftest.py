import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "integration")]

from hosts import Rack, missing  # noqa: E402
from made_up_run import RECIPE, make_run  # noqa: E402

# Long enough to be interrupted.
LONGER = {
    **RECIPE,
    "phases": [{**RECIPE["phases"][0], "steps": 30}, {**RECIPE["phases"][1], "steps": 10}],
    "training": {**RECIPE["training"], "checkpoint": {"every_steps": 5, "keep_last": 2}, "process_group_timeout_s": 60},
}


@pytest.fixture(scope="session")
def rack(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    with Rack(tmp_path_factory.mktemp("rack") / "rack") as hosts:
        yield hosts


@pytest.fixture(autouse=True)
def _nothing_runs_on(rack):
    yield
    for host in rack:
        host.kill()


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A run folder up to its shards: nothing is trained here."""
    root = tmp_path_factory.mktemp("made")
    make_run(root, LONGER)
    return root

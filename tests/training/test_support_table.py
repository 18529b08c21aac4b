"""The table of deepspeed_configs/README.md against what the code allows and what the two-rank tests prove."""

from pathlib import Path

import pytest
import test_engine

from xlm.training.offload import STAGES
from xlm.training.precision import SUPPORTED

README = Path(__file__).parents[2] / "deepspeed_configs" / "README.md"


@pytest.fixture(scope="module")
def table():
    """Rows of the table, by their first cell: for each stage whether it says yes."""
    rows = {}
    for line in README.read_text(encoding="utf-8").splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and set(cells) <= {"yes", "no"}:
            rows[first] = tuple(stage for stage, cell in enumerate(cells) if cell == "yes")
    return rows


def test_the_table_is_what_the_code_allows(table):
    wanted = {precision: SUPPORTED[precision] for precision in SUPPORTED}
    wanted |= {f"`{key}` to the CPU": stages for key, stages in STAGES.items()}
    assert table == wanted | {"NVMe": ()}


def test_every_cell_is_proved_on_two_ranks():
    numbers = [*test_engine.PLAIN, *test_engine.OFFLOADED, *test_engine.BF16, *test_engine.FP16]
    proved = {(one.get("precision", "fp32"), one["stage"], *sorted(one.get("zero", {}))) for one in numbers}
    for precision, stages in SUPPORTED.items():
        assert proved >= {(precision, stage) for stage in stages}
        assert proved >= {(precision, stage, "offload_optimizer") for stage in STAGES["offload_optimizer"]}
        assert proved >= {(precision, stage, "offload_optimizer", "offload_param") for stage in STAGES["offload_param"]}

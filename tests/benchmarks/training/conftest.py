"""The benchmarks import one another by the name of their folder, as when one of them is run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))


@pytest.fixture(params=["monolingual", "pairs"])
def case(request):
    from training.cases import Case

    return Case(32, 2, 2, request.param, "fp32", rows=4, rounds=2, vocabulary=500, row_tokens=64, step_tokens=600)

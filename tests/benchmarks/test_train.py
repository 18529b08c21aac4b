"""What the training benchmark measures: both shapes, both kinds of data, and every precision that means something."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def train():
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("benchmark_train", FOLDER / "train.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.parametrize("precisions", [("fp32",), ("fp32", "bf16")])
def test_every_shape_kind_and_precision_once(train, monkeypatch, precisions):
    monkeypatch.setattr(train, "precisions", lambda: precisions)
    found = train.cases(quick=False)
    assert len({case.name for case in found}) == len(found) == 4 * len(precisions)
    assert {(case.width, case.layers, case.vocabulary) for case in found} == {(768, 12, 250_002), (256, 6, 250_002)}
    assert all(case.step_tokens >= 8_192 and case.row_tokens == 256 for case in found)


def test_keys_are_written_only_where_everything_was_measured(train, monkeypatch, capsys):
    written = []
    monkeypatch.setattr(train, "measure", lambda chosen: ({"monolingual": 3.0}, {"cases": len(chosen), "worst": {"monolingual": "here"}}))
    monkeypatch.setattr(train, "write_results", lambda *arguments: written.append(arguments))
    for arguments in (["--quick"], ["--only", "pairs"], []):
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        train.main()
    details = {"cases": len(train.cases(quick=False)), "worst": {"monolingual": "here"}}
    assert written == [("train", {"monolingual": 3.0}, details)]
    assert "monolingual    3.00  (here)" in capsys.readouterr().out

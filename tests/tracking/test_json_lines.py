import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.tracking.json_lines import JsonLines


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_floats_read_back_exactly(tmp_path_factory, values):
    lines = JsonLines(tmp_path_factory.mktemp("lines") / "metrics.jsonl")
    for step, value in enumerate(values):
        lines.append({"step": step, "loss": value})
    assert [record["loss"] for record in lines.read()] == values


@pytest.mark.parametrize("torn", ['{"step": 3, "lo', '{"step": 3, "loss": 1.0}', ""])
def test_a_torn_last_line_is_left_out_and_cut_away(tmp_path, torn):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    for step in (1, 2):
        lines.append({"step": step})
    with lines.path.open("a", encoding="utf-8") as stream:
        stream.write(torn)
    assert [record["step"] for record in lines.read()] == [1, 2]
    lines.cut_after(2)
    lines.append({"step": 3, "ok": True})
    assert [json.loads(line)["step"] for line in lines.path.read_text(encoding="utf-8").splitlines()] == [1, 2, 3]


def test_cutting_keeps_the_steps_up_to_the_checkpoint(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    for step in (5, 10, 15, 20):
        lines.append({"step": step, "language": "zh-Hans", "loss": 1 / 3})
    before = lines.path.read_bytes().splitlines()
    assert [record["step"] for record in lines.cut_after(12)] == [5, 10]
    assert lines.path.read_bytes().splitlines() == before[:2]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_no_file_has_no_records(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    assert lines.read() == []
    assert lines.cut_after(5) == []
    assert not lines.path.exists()


def test_a_value_that_json_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        JsonLines(tmp_path / "metrics.jsonl").append({"step": 1, "loss": float("nan")})

import pytest

from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import ParallelLinesSource
from xlm.corpora.readers.parallel_lines import read_parallel_lines
from xlm.corpora.records import RawPair
from xlm.errors import UserError


def source(tmp_path, left, right):
    (tmp_path / "x.en").write_bytes(left.encode() if isinstance(left, str) else left)
    (tmp_path / "x.sw").write_bytes(right.encode() if isinstance(right, str) else right)
    return ParallelLinesSource(
        name="mine",
        kind="parallel_lines",
        licence="own",
        source=tmp_path / "x.en",
        target=tmp_path / "x.sw",
        source_language="en",
        target_language="sw",
    )


def test_line_n_translates_line_n(tmp_path):
    drops = DropCounts()
    records = list(read_parallel_lines(source(tmp_path, "Good morning\n\nWater\n", "Habari\nx\nMaji"), drops))
    assert records == [RawPair("Good morning", "Habari", "en", "sw", "running"), RawPair("Water", "Maji", "en", "sw", "running")]
    assert drops.nested() == {"sw": {"mine": {"empty": 1}}}


def test_sides_of_different_length_name_both_counts(tmp_path):
    with pytest.raises(UserError, match=r"x\.en has 3 lines, .*x\.sw has 2; they must be parallel"):
        list(read_parallel_lines(source(tmp_path, "a\nb\nc\n", "a\nb\n"), DropCounts()))


def test_invalid_utf8_names_file_and_line(tmp_path):
    with pytest.raises(UserError, match=r"x\.sw:2: not valid UTF-8"):
        list(read_parallel_lines(source(tmp_path, "a\nb\n", b"a\n\xff\n"), DropCounts()))

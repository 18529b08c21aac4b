"""Two text files, line n of one translating line n of the other (the form of OPUS and Moses corpora)."""

from __future__ import annotations

from collections.abc import Iterator

from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import ParallelLinesSource
from xlm.corpora.readers.lines import utf8_lines
from xlm.corpora.records import RawPair, Record
from xlm.errors import UserError


def read_parallel_lines(source: ParallelLinesSource, drops: DropCounts) -> Iterator[Record]:
    """Yield a pair a line; lines empty on a side are counted; sides of different length raise UserError naming both."""
    # Counted first: a file that is out of step must not leave half of its pairs behind.
    count_source = sum(1 for _ in utf8_lines(source.source))
    count_target = sum(1 for _ in utf8_lines(source.target))
    if count_source != count_target:
        raise UserError(
            f"the two sides of source '{source.name}' differ in length: {source.source} has {count_source:,} lines, "
            f"{source.target} has {count_target:,}; they must be parallel line by line.",
        )
    for left, right in zip(utf8_lines(source.source), utf8_lines(source.target), strict=True):
        if left.strip() and right.strip():
            yield RawPair(left, right, source.source_language, source.target_language, "running")
        else:
            drops.add(source.target_language, source.name, "empty")

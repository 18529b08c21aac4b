"""From addresses of rows to their tokens: finds the texts, and lays them out for their objective.

What a row holds and how it is masked depends on (seed, corpus, objective, length, epoch, row) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from xlm.batching.contrastive import contrastive_rows
from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_rows
from xlm.batching.packed_batch import OBJECTIVES
from xlm.batching.packed_rows import Ids, PackedRows, PieceIds
from xlm.batching.row_reader import RowReader, RowTexts
from xlm.batching.tlm import tlm_rows
from xlm.mixing.data_plan import RowRef
from xlm.seeding import key_digest, key_int64
from xlm.shards.reader import ShardSet


@dataclass(frozen=True, slots=True)
class BuiltRows:
    """Rows of one objective with their addresses [R], and where each sequence came from [S] if that was asked for."""

    refs: Sequence[RowRef]
    rows: PackedRows
    provenance: Sequence[str]


class RowBuilder:
    """Builds rows over one shards folder; ``languages`` are the data plan's, in the order of their ids."""

    def __init__(self, shards: ShardSet, pieces: PieceIds, languages: Sequence[str], seed: int) -> None:
        self._reader = RowReader(shards)
        self._pieces = pieces
        self._seed = seed
        self._masker = Masker(pieces)
        ids = {language: number for number, language in enumerate(languages)}
        self._language_ids = {
            name: [ids[language] for language in entry.languages]
            for name, entry in shards.index.corpora.items()
            if all(language in ids for language in entry.languages)
        }

    def build(self, refs: Sequence[RowRef], *, with_provenance: bool = False) -> list[BuiltRows]:
        """Return the rows of a micro-batch, objective by objective, inside one by corpus."""
        built: list[BuiltRows] = []
        for objective in OBJECTIVES:
            of_objective = [ref for ref in refs if ref.objective == objective]
            if of_objective:
                texts = self._reader.read(of_objective)
                built.append(BuiltRows(texts.refs, self._lay_out(texts), self._provenance(texts) if with_provenance else ()))
        return built

    def pairs_in(self, ref: RowRef) -> int:
        """Return the number of pairs that a row adds to the logical group, 0 for other objectives; reads no tokens."""
        return self._reader.pairs_in(ref) if ref.objective == "contrastive" else 0

    def _lay_out(self, texts: RowTexts) -> PackedRows:
        first = texts.refs[0]
        by_corpus = np.array([self._language_ids[corpus] for corpus in texts.corpora], dtype=np.int64)
        languages = np.repeat(by_corpus, texts.segments_per_corpus, axis=0)  # [S, sides]
        if first.objective == "contrastive":
            sources, targets = texts.sides
            return contrastive_rows(sources, targets, texts.segments_per_row, languages, self._pair_keys(texts), pieces=self._pieces)
        keys = [self._key(ref) for ref in texts.refs]
        if first.objective == "tlm":
            sources, targets = texts.sides
            return tlm_rows(
                sources,
                targets,
                texts.segments_per_row,
                languages,
                pieces=self._pieces,
                masker=self._masker,
                mask_rate=first.mask_rate,
                keys=keys,
            )
        return mlm_rows(
            texts.sides[0],
            texts.segments_per_row,
            languages[:, 0],
            pieces=self._pieces,
            masker=self._masker,
            mask_rate=first.mask_rate,
            keys=keys,
        )

    def _key(self, ref: RowRef) -> bytes:
        return key_digest("row", self._seed, ref.corpus, ref.objective, ref.sequence_length, ref.epoch, ref.row)

    def _pair_keys(self, texts: RowTexts) -> Ids:
        return np.array([pair_key_id(key) for key in self._reader.names(texts)], dtype=np.int64)

    def _provenance(self, texts: RowTexts) -> list[str]:
        """Say ``corpus#item[start:end]`` of every sequence; the target of a contrastive pair counts on from its source."""
        shown: list[str] = []
        starts = texts.offsets.tolist()
        side_lengths = [side.lengths.tolist() for side in texts.sides]
        for number, (corpus, item) in enumerate(_addresses(texts)):
            start, lengths = starts[number], [of_side[number] for of_side in side_lengths]
            cuts = lengths if texts.refs[0].objective == "contrastive" else [sum(lengths)]
            for length in cuts:
                shown.append(f"{corpus}#{item}[{start}:{start + length}]")
                start += length
        return shown


def _addresses(texts: RowTexts) -> list[tuple[str, int]]:
    corpora = [corpus for corpus, count in zip(texts.corpora, texts.segments_per_corpus.tolist(), strict=True) for _ in range(count)]
    return list(zip(corpora, texts.items.tolist(), strict=True))


@lru_cache(maxsize=1 << 16)
def pair_key_id(key: str) -> int:
    """Return the 63-bit number that stands for a pair's key in a batch."""
    return key_int64("pair", key)

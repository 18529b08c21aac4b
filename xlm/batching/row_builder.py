"""From a row's address to its tokens: reads the segments, and lays them out for their objective.

What a row holds and how it is masked depends on (seed, corpus, objective, length, epoch, row) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from xlm.batching.contrastive import contrastive_row
from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_row
from xlm.batching.row_tokens import PieceIds, RowTokens
from xlm.batching.tlm import tlm_row
from xlm.mixing.data_plan import RowRef
from xlm.seeding import key_int64, keyed_generator
from xlm.shards.reader import Segment, ShardSet


class RowBuilder:
    """Builds rows over one shards folder; ``languages`` are the data plan's, in the order of their ids."""

    def __init__(self, shards: ShardSet, pieces: PieceIds, languages: Sequence[str], seed: int) -> None:
        self._shards = shards
        self._pieces = pieces
        self._seed = seed
        self._masker = Masker(pieces)
        ids = {language: number for number, language in enumerate(languages)}
        self._language_ids = {
            name: tuple(ids[language] for language in entry.languages)
            for name, entry in shards.index.corpora.items()
            if all(language in ids for language in entry.languages)
        }

    def build(self, ref: RowRef) -> RowTokens:
        """Return the tokens of a row."""
        segments = self._segments(ref)
        languages = self._language_ids[ref.corpus]
        if ref.objective == "mlm":
            tokens = self._shards.document_tokens
            return mlm_row(
                [tokens(ref.corpus, item)[start:end] for item, start, end in segments],
                languages[0],
                pieces=self._pieces,
                masker=self._masker,
                mask_rate=ref.mask_rate,
                generator=self._generator(ref),
            )
        both = (languages[0], languages[1])
        pairs = [self._shards.pair_tokens(ref.corpus, segment.item) for segment in segments]
        if ref.objective == "tlm":
            return tlm_row(pairs, both, pieces=self._pieces, masker=self._masker, mask_rate=ref.mask_rate, generator=self._generator(ref))
        keys = [pair_key_id(self._shards.pair_key(ref.corpus, segment.item)) for segment in segments]
        return contrastive_row(pairs, keys, both, pieces=self._pieces)

    def pairs_in(self, ref: RowRef) -> int:
        """Return the number of pairs that a row adds to the logical group; reads the row plan only, 0 for other objectives."""
        if ref.objective != "contrastive":
            return 0
        offsets = self._shards.plan(ref.corpus, ref.objective, ref.sequence_length, ref.variant).offsets
        return int(offsets[ref.row + 1] - offsets[ref.row])

    def provenance(self, ref: RowRef) -> list[str]:
        """Return ``corpus#item[start:end]`` of every sequence of a row; the target of a pair counts on from its source."""
        shown: list[str] = []
        for item, start, end in self._segments(ref):
            if ref.objective == "contrastive":
                middle = len(self._shards.pair_tokens(ref.corpus, item)[0])
                shown += (f"{ref.corpus}#{item}[0:{middle}]", f"{ref.corpus}#{item}[{middle}:{end}]")
            else:
                shown.append(f"{ref.corpus}#{item}[{start}:{end}]")
        return shown

    def _segments(self, ref: RowRef) -> list[Segment]:
        return self._shards.row(ref.corpus, ref.objective, ref.sequence_length, ref.variant, ref.row)

    def _generator(self, ref: RowRef) -> np.random.Generator:
        return keyed_generator("row", self._seed, ref.corpus, ref.objective, ref.sequence_length, ref.epoch, ref.row)


@lru_cache(maxsize=1 << 16)
def pair_key_id(key: str) -> int:
    """Return the 63-bit number that stands for a pair's key in a batch."""
    return key_int64("pair", key)

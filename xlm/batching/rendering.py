"""A batch as a person reads it, and the same as plain values for JSON: what the model saw, sequence by sequence.

A predicted position is shown as ``[piece→target]``: ``<mask>``, a random piece or the target itself stands
before the arrow. White space at the start of a word is SentencePiece's ▁.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from xlm.batching.packed_batch import OBJECTIVES, PackedBatch

WIDTH = 110


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One position: the piece in the input, and the piece to be predicted there (None elsewhere)."""

    piece: str
    target: str | None
    position: int
    language: str
    token_type: int

    def __str__(self) -> str:
        return self.piece if self.target is None else f"[{self.piece}→{self.target}]"


@dataclass(frozen=True, slots=True)
class ShownSequence:
    """One sequence of a batch; attention does not leave it."""

    objective: str
    row: int
    pair: int | None  # number of the pair within the global batch
    source: str  # "corpus#item[start:end]", empty where unknown
    tokens: tuple[ShownToken, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def show(batch: PackedBatch, pieces: Sequence[str], languages: Sequence[str]) -> Iterator[ShownSequence]:
    """Yield the sequences of a batch; ``pieces`` is the vocabulary, ``languages`` what language ids stand for."""
    targets = dict(zip(batch.predict_positions.tolist(), batch.labels.tolist(), strict=True))
    columns = (batch.input_ids, batch.position_ids, batch.language_ids, batch.token_type_ids)
    ids, positions, language_ids, token_types = (column.tolist() for column in columns)
    bounds = batch.cu_seqlens.tolist()
    pairs, rows, objectives = batch.pair_index.tolist(), batch.row_id.tolist(), batch.sequence_objective.tolist()
    for number in range(batch.sequences):
        tokens = tuple(
            ShownToken(
                piece=pieces[ids[place]],
                target=pieces[targets[place]] if place in targets else None,
                position=positions[place],
                language=languages[language_ids[place]],
                token_type=token_types[place],
            )
            for place in range(bounds[number], bounds[number + 1])
        )
        yield ShownSequence(
            objective=OBJECTIVES[objectives[number]],
            row=rows[number],
            pair=pairs[number] if pairs[number] >= 0 else None,
            source=batch.provenance[number] if batch.provenance else "",
            tokens=tokens,
        )


def lines(sequence: ShownSequence) -> Iterator[str]:
    """Yield a heading, then one paragraph for each stretch of a language, with the positions it takes."""
    heading = [f"row {sequence.row}", sequence.objective, sequence.source]
    heading += [f"pair {sequence.pair}"] if sequence.pair is not None else []
    yield " · ".join(part for part in heading if part)
    for (language, token_type), stretch in groupby(sequence.tokens, key=lambda token: (token.language, token.token_type)):
        tokens = list(stretch)
        label = f"  {language:<8} {tokens[0].position:>4}–{tokens[-1].position:<4} type {token_type}  "
        body = " ".join(str(token) for token in tokens)
        yield textwrap.fill(
            body, WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_long_words=False, break_on_hyphens=False
        )

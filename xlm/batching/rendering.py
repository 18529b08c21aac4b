"""A batch as a person reads it, and the same as plain values for JSON: what the model saw, sequence by sequence.

A predicted position is shown as ``[piece→target]``: ``<mask>``, a random piece or the target itself stands
before the arrow. White space at the start of a word is SentencePiece's ▁. CLM predicts the next piece at every
position, which is said once and not shown at each.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Protocol

from xlm.batching.packed_batch import OBJECTIVES, PAIRS_PER_ROW, PackedBatch, SegmentSource

WIDTH = 110
# What a sequence label says, by objective.
LABELS: Mapping[str, tuple[str, str]] = {
    "nsp": ("B follows A", "B is of another document"),
    "sop": ("in order", "swapped"),
}


class Decoder(Protocol):
    """What a `Vocabulary` does with ids."""

    @property
    def pieces(self) -> Sequence[str]:
        """Every piece, by id."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, special pieces left out."""


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
    row: int  # index within the global batch
    pair: int | None  # place of a contrastive pair within its row
    label: int | None  # of NSP and SOP
    sources: tuple[SegmentSource, ...]  # of its segments in order, nothing where unknown
    text: str  # before anything was masked
    tokens: tuple[ShownToken, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def show(batch: PackedBatch, vocabulary: Decoder, languages: Sequence[str]) -> Iterator[ShownSequence]:
    """Yield the sequences of a batch; ``languages`` is what language ids stand for."""
    targets = dict(zip(batch.predict_positions.tolist(), batch.labels.tolist(), strict=True))
    columns = (batch.input_ids, batch.position_ids, batch.language_ids, batch.token_type_ids)
    ids, positions, language_ids, token_types = (column.tolist() for column in columns)
    bounds = batch.cu_seqlens.tolist()
    sequences = (batch.sequence_objective, batch.row_id, batch.pair_index, batch.sequence_label)
    for number, (code, row, pair, label) in enumerate(zip(*(column.tolist() for column in sequences), strict=True)):
        objective = OBJECTIVES[code]
        places = range(bounds[number], bounds[number + 1])
        yield ShownSequence(
            objective=objective,
            row=row,
            pair=pair % PAIRS_PER_ROW if pair >= 0 else None,
            label=label if label >= 0 else None,
            sources=batch.provenance[number] if batch.provenance else (),
            text=vocabulary.decode(ids[place] if objective == "clm" else targets.get(place, ids[place]) for place in places),
            tokens=tuple(
                ShownToken(
                    piece=vocabulary.pieces[ids[place]],
                    target=vocabulary.pieces[targets[place]] if place in targets else None,
                    position=positions[place],
                    language=languages[language_ids[place]],
                    token_type=token_types[place],
                )
                for place in places
            ),
        )


def lines(sequence: ShownSequence) -> Iterator[str]:
    """Yield a heading, where the segments came from, the text, then a paragraph for each stretch of a language and its positions."""
    yield " · ".join(_heading(sequence))
    for source in sequence.sources:
        yield f"  from     {source.corpus}#{source.item}[{source.start}:{source.end}] {source.name}"
    yield from _wrapped("  text     ", sequence.text)
    every_position = sequence.objective == "clm"
    stretches = groupby(_with_restarts(sequence.tokens), key=lambda pair: (pair[0], pair[1].language, pair[1].token_type))
    for (_, language, token_type), stretch in stretches:
        tokens = [token for _, token in stretch]
        label = f"  {language:<8} {tokens[0].position:>4}–{tokens[-1].position:<4} type {token_type}  "
        yield from _wrapped(label, " ".join(token.piece if every_position else str(token) for token in tokens))


def _heading(sequence: ShownSequence) -> list[str]:
    parts = [f"row {sequence.row}", sequence.objective]
    if sequence.pair is not None:
        parts.append(f"pair {sequence.pair}")
    if sequence.label is not None:
        parts.append(f"label {sequence.label} ({LABELS[sequence.objective][sequence.label]})")
    if sequence.objective == "clm":
        parts.append("each position predicts the next piece")
    return parts


def _with_restarts(tokens: Sequence[ShownToken]) -> Iterator[tuple[int, ShownToken]]:
    """Yield every token with the number of its run of rising positions: they restart inside a sequence in XLM's form of TLM."""
    run, expected = 0, 0
    for token in tokens:
        run += token.position != expected
        expected = token.position + 1
        yield run, token


def _wrapped(label: str, body: str) -> list[str]:
    return textwrap.wrap(
        body, WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_long_words=False, break_on_hyphens=False
    )

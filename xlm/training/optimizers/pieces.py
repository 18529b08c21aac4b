"""What a rank's optimizer holds of parameters: ZeRO 1 to 3 hand it flat tensors in which pieces of parameters lie one after the other.

Element by element (AdamW) that makes no difference. What looks at whole parameters, their norms (LAMB) or their
singular vectors (Muon), has to know where pieces begin and to put together what lies on several ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

# Numbers that are put together at a time: bounds the memory for parameters that lie on several ranks (64 MiB in fp32).
BUCKET = 1 << 24


@dataclass(frozen=True)
class Piece:
    """Elements ``start`` to ``stop`` of a flattened parameter, from ``offset`` on in this rank's tensor; may be none."""

    shape: tuple[int, ...]  # of the whole parameter
    start: int
    stop: int
    offset: int
    shared: bool  # whether several ranks have one of it; the same on every rank

    @property
    def elements(self) -> int:
        """How many numbers the whole parameter has."""
        return math.prod(self.shape)

    def of(self, flat: Tensor) -> Tensor:
        """Return the piece's view of a tensor that is laid out as the optimizer's, flat."""
        return flat.view(-1)[self.offset : self.offset + self.stop - self.start]


@dataclass(frozen=True)
class Layout:
    """By optimizer tensor, one piece of every parameter that it may hold something of, in an order that all ranks share."""

    pieces: Mapping[Tensor, tuple[Piece, ...]]
    split: bool  # whether ranks hold different pieces
    device: torch.device  # where the process group communicates; tensors may lie elsewhere (offload)

    def of(self, tensor: Tensor) -> tuple[Piece, ...]:
        """Return the pieces of one optimizer tensor."""
        return self.pieces[tensor]

    def squared_norms(self, tensors: Sequence[Tensor], pieces: Sequence[Piece]) -> Tensor:
        """Return the squared norms of whole parameters, [tensors, parameters] fp64 on the CPU; every rank has to call it.

        ``tensors`` are laid out as ``pieces`` say. Sums of fp64, so that no rounding of theirs tells how many ranks there are.
        """
        norms = [torch.stack([torch.linalg.vector_norm(piece.of(flat), dtype=torch.float64) for piece in pieces]) for flat in tensors]
        squares = torch.stack(norms).square()
        if self.split:
            squares = squares.to(self.device)
            dist.all_reduce(squares)
        return squares.cpu()

    def wholes(self, flat: Tensor, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Tensor]]:
        """Yield (piece, whole parameter) for every one that this rank holds something of; every rank has to go through them.

        A parameter on several ranks is put together by a sum in which each number has one term that is not 0: exactly.
        """
        for piece in pieces:
            if not piece.shared and piece.stop > piece.start:
                yield piece, piece.of(flat).view(piece.shape)
        for bucket in _buckets([piece for piece in pieces if piece.shared]):
            together = torch.zeros(sum(piece.elements for piece in bucket), dtype=flat.dtype, device=self.device)
            places = torch.split(together, [piece.elements for piece in bucket])
            for piece, place in zip(bucket, places, strict=True):
                place[piece.start : piece.stop] = piece.of(flat)
            dist.all_reduce(together)
            for piece, place in zip(bucket, places, strict=True):
                if piece.stop > piece.start:
                    yield piece, place.view(piece.shape).to(flat.device)


def _buckets(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Split pieces into runs of at most `BUCKET` numbers, or of one parameter."""
    bucket: list[Piece] = []
    for piece in pieces:
        if bucket and sum(one.elements for one in bucket) + piece.elements > BUCKET:
            yield bucket
            bucket = []
        bucket.append(piece)
    if bucket:
        yield bucket


def whole_layout(tensors: Sequence[Tensor], device: torch.device) -> Layout:
    """Return the layout of an optimizer that holds whole parameters, on every rank the same (stage 0)."""
    pieces = {tensor: (Piece(tuple(tensor.shape), 0, tensor.numel(), 0, shared=False),) for tensor in tensors}
    return Layout(pieces, split=False, device=device)


def run_of_each(shapes: Sequence[tuple[int, ...]], offsets: Sequence[int], partition: int, rank: int) -> tuple[Piece, ...]:
    """Return the pieces of the run [rank x partition, (rank + 1) x partition) of parameters that begin at ``offsets``: stages 1, 2."""
    first, found = rank * partition, []
    for shape, begin in zip(shapes, offsets, strict=True):
        elements = math.prod(shape)
        start, stop = (min(max(bound - begin, 0), elements) for bound in (first, first + partition))
        shared = begin // partition != (begin + max(elements, 1) - 1) // partition
        found.append(Piece(shape, start, stop, max(begin - first, 0) if stop > start else 0, shared))
    return tuple(found)


def part_of_each(shapes: Sequence[tuple[int, ...]], parts: Sequence[int], rank: int, world_size: int) -> tuple[Piece, ...]:
    """Return the pieces where every rank has ``parts`` numbers of each parameter, the last ones padded: stage 3."""
    found, offset = [], 0
    for shape, part in zip(shapes, parts, strict=True):
        elements = math.prod(shape)
        start, stop = min(rank * part, elements), min((rank + 1) * part, elements)
        found.append(Piece(shape, start, stop, offset, shared=world_size > 1))
        offset += part
    return tuple(found)

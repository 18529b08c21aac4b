"""A SentencePiece model as plain values, and a model made from them: what converting to and from other formats needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from xlm.errors import UserError


class PieceKind(Enum):
    """What a piece is for, by the numbers of SentencePiece's model format."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """One piece: its text, its score (a log-probability for Unigram, minus its rank for BPE) and its kind."""

    text: str
    score: float
    kind: PieceKind


@dataclass(frozen=True)
class ModelParts:
    """Everything in a SentencePiece model that decides how text becomes ids; ``character_map`` is the compiled normaliser."""

    pieces: tuple[Piece, ...]
    model_type: str  # unigram, bpe, word or char
    byte_fallback: bool
    normaliser: str
    character_map: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    whitespace_as_suffix: bool


_UNIGRAM = 1
_MODEL_TYPES: Mapping[int, str] = {_UNIGRAM: "unigram", 2: "bpe", 3: "word", 4: "char"}


def read_parts(model: bytes, *, file: Path | str | None = None) -> ModelParts:
    """Return the parts of a serialised SentencePiece model; raises UserError for bytes that are not one."""
    try:
        proto = model_pb2.ModelProto.FromString(model)
    except DecodeError:
        proto = model_pb2.ModelProto()
    if not proto.pieces:
        raise UserError("this is not a SentencePiece model, or a damaged one; copy it again.", file=file)
    trainer, normaliser = proto.trainer_spec, proto.normalizer_spec
    return ModelParts(
        pieces=tuple(Piece(piece.piece, piece.score, PieceKind(piece.type)) for piece in proto.pieces),
        model_type=_MODEL_TYPES.get(trainer.model_type, "unknown"),
        byte_fallback=trainer.byte_fallback,
        normaliser=normaliser.name,
        character_map=normaliser.precompiled_charsmap,
        add_dummy_prefix=normaliser.add_dummy_prefix,
        remove_extra_whitespaces=normaliser.remove_extra_whitespaces,
        escape_whitespaces=normaliser.escape_whitespaces,
        whitespace_as_suffix=trainer.treat_whitespace_as_suffix,
    )


def with_pieces(model: bytes, pieces: tuple[Piece, ...], *, byte_fallback: bool) -> bytes:
    """Return a SentencePiece model with the normaliser and type of ``model`` and other pieces.

    The ids that the trainer noted for the special pieces are set from ``pieces``, where <pad>, <unk>, <s> and
    </s> are looked up by their text.
    """
    proto = model_pb2.ModelProto.FromString(model)
    del proto.pieces[:]
    for piece in pieces:
        proto.pieces.add(piece=piece.text, score=piece.score, type=piece.kind.value)
    ids = {piece.text: number for number, piece in enumerate(pieces)}
    trainer = proto.trainer_spec
    trainer.vocab_size = len(pieces)
    trainer.byte_fallback = byte_fallback
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = (ids.get(text, -1) for text in ("<pad>", "<unk>", "<s>", "</s>"))
    trainer.pad_piece, trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = "<pad>", "<unk>", "<s>", "</s>"
    serialised: bytes = proto.SerializeToString()
    return serialised


def inexact_scores(model: bytes) -> int:
    """Return how many pieces of a Unigram model have scores that are no multiples of 1/64; see `with_exact_scores`."""
    parts = read_parts(model)
    normal = [piece.score * 64 for piece in parts.pieces if piece.kind is PieceKind.NORMAL]
    return sum(not score.is_integer() for score in normal) if parts.model_type == "unigram" else 0


def with_exact_scores(model: bytes) -> bytes:
    """Return a Unigram model whose scores are rounded to 1/64, so that sums of them are exact in single precision.

    SentencePiece adds scores in single precision along a text, so that which of two equally likely cuts of a word it
    takes (``ww`` + ``w`` or ``w`` + ``ww``) hangs on the rounding of everything before the word. Multiples of 1/64
    add up without rounding to 262,144, tens of thousands of pieces; then equal is equal, the same word is cut the same way
    everywhere, and libraries that add in double precision agree. The likelihood of a piece changes by 0.8 % at most.
    """
    proto = model_pb2.ModelProto.FromString(model)
    if proto.trainer_spec.model_type == _UNIGRAM:
        for piece in proto.pieces:
            piece.score = round(piece.score * 64) / 64
    serialised: bytes = proto.SerializeToString()
    return serialised

"""The vocabulary: a SentencePiece model, its special ids, and the fingerprint everything else carries.

Special pieces are *control* symbols, which never match in text, so a document that contains the
characters ``<mask>`` or ``<s>`` cannot inject a special id; callers insert ids themselves. The
fingerprint covers what decides how text becomes ids and nothing else: a model's bytes also embed the
trainer's settings and paths, and would call two equal vocabularies different.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from xlm.errors import UserError
from xlm.runs.fingerprint import fingerprint
from xlm.runs.stage import write_json
from xlm.vocab.spec import SPECIAL_PIECES, VocabularySpec

MODEL_FILE = "spm.model"
DESCRIPTION_FILE = "vocabulary.json"
WORD_START = "\u2581"  # SentencePiece writes white space as LOWER ONE EIGHTH BLOCK.

Ids = npt.NDArray[np.int32]


class Vocabulary:
    """A loaded vocabulary; ids are those of the SentencePiece model, special pieces first."""

    def __init__(self, model: bytes, *, file: Path | str | None = None) -> None:
        """Parse a serialised SentencePiece model; raises UserError for one that is damaged or not ours."""
        self._model = model
        self._open(file)

    def _open(self, file: Path | str | None) -> None:
        damaged = (
            "this vocabulary is damaged (not a SentencePiece model); delete its folder and build it again with pipelines/build_vocab.py."
        )
        try:
            proto = model_pb2.ModelProto.FromString(self._model)
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        except (DecodeError, RuntimeError, ValueError):
            raise UserError(damaged, file=file) from None
        self.pieces: tuple[str, ...] = tuple(piece.piece for piece in proto.pieces)
        if not self.pieces:
            raise UserError(damaged, file=file)
        if self.pieces[: len(SPECIAL_PIECES)] != SPECIAL_PIECES:
            raise UserError(
                f"the first pieces of this vocabulary are {' '.join(self.pieces[: len(SPECIAL_PIECES)])}; "
                f"{' '.join(SPECIAL_PIECES)} are expected; build it with pipelines/build_vocab.py.",
                file=file,
            )
        kinds = np.array([piece.type for piece in proto.pieces], dtype=np.int32)
        if not (kinds[[0, 2, 3, 4]] == model_pb2.ModelProto.SentencePiece.CONTROL).all():
            raise UserError("the special pieces of this vocabulary are not control symbols, so text could contain them.", file=file)
        self.is_byte: npt.NDArray[np.bool_] = kinds == model_pb2.ModelProto.SentencePiece.BYTE
        # A piece that begins with white space begins a word; [size] bool.
        self.is_word_start: npt.NDArray[np.bool_] = np.array([piece.startswith(WORD_START) for piece in self.pieces])
        self._proto = proto

    @classmethod
    def load(cls, folder: Path) -> Vocabulary:
        """Load ``spm.model`` of a vocabulary folder and check it against ``vocabulary.json`` beside it."""
        path = folder / MODEL_FILE
        try:
            vocabulary = cls(path.read_bytes(), file=path)
        except FileNotFoundError:
            raise UserError("there is no vocabulary here; build it with pipelines/build_vocab.py.", file=path) from None
        description = folder / DESCRIPTION_FILE
        try:
            recorded = json.loads(description.read_text(encoding="utf-8"))["fingerprint"]
        except FileNotFoundError:
            return vocabulary
        except (json.JSONDecodeError, KeyError, TypeError):
            raise UserError("this description is damaged; build the vocabulary again.", file=description) from None
        if recorded != vocabulary.fingerprint:
            raise UserError(
                f"{DESCRIPTION_FILE} says fingerprint {recorded}, the model beside it has {vocabulary.fingerprint}; "
                "one of them was replaced; build the vocabulary again.",
                file=path,
            )
        return vocabulary

    def save(self, folder: Path, spec: VocabularySpec | None) -> None:
        """Write ``spm.model`` and ``vocabulary.json`` (docs/formats.md); one that was trained elsewhere has no spec."""
        (folder / MODEL_FILE).write_bytes(self._model)
        description = {
            "size": self.size,
            "special_ids": dict(zip(SPECIAL_PIECES, self.special_ids, strict=True)),
            "fingerprint": self.fingerprint,
            "spec": None if spec is None else spec.model_dump(mode="json"),
        }
        write_json(folder / DESCRIPTION_FILE, description)

    # Ids: fixed by the order of SPECIAL_PIECES, which is checked on loading.
    pad_id, unk_id, bos_id, eos_id, mask_id = range(len(SPECIAL_PIECES))
    special_ids: tuple[int, ...] = tuple(range(len(SPECIAL_PIECES)))

    @property
    def size(self) -> int:
        """Number of pieces, special and byte pieces included."""
        return len(self.pieces)

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every id: uint16 up to 65,536 pieces, else uint32."""
        return np.dtype(np.uint16 if self.size <= 1 << 16 else np.uint32)

    @property
    def serialized_model(self) -> bytes:
        """The bytes of the SentencePiece model."""
        return self._model

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what decides the ids of a text (docs/design.md), 16 hexadecimal digits."""
        normaliser = self._proto.normalizer_spec
        trainer = self._proto.trainer_spec
        return fingerprint(
            {
                "pieces": [(piece.piece, struct.pack("<f", piece.score).hex(), int(piece.type)) for piece in self._proto.pieces],
                "model_type": int(trainer.model_type),
                "normaliser": normaliser.name,
                "character_map": sha256(normaliser.precompiled_charsmap).hexdigest(),
                "byte_fallback": trainer.byte_fallback,
                "add_dummy_prefix": normaliser.add_dummy_prefix,
                "remove_extra_whitespaces": normaliser.remove_extra_whitespaces,
                "escape_whitespaces": normaliser.escape_whitespaces,
                "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
                "special_ids": dict(zip(SPECIAL_PIECES, self.special_ids, strict=True)),
            }
        )

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, [tokens] int32, read-only; no special pieces are added."""
        ids: Ids = self._processor.encode(text, return_type="numpy")
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text; one thread, because ranks and stages divide the cores themselves."""
        # SentencePiece takes the batch path only for a list.
        ids: list[Ids] = self._processor.encode(list(texts), return_type="numpy", num_threads=1)
        return ids

    def encode_with_offsets(self, text: str) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return ids [tokens] and the character offsets [tokens, 2] (begin, end) of each token in ``text``.

        A piece that begins a word covers the white space before it; all bytes of a character but the last
        cover nothing.
        """
        mapping = self._processor.encode(text, return_type="offset_mapping")
        ids = np.array(mapping["ids"], dtype=np.int32)
        offsets = np.array(mapping["offsets"], dtype=np.int64).reshape(-1, 2)
        return ids, offsets

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; special pieces other than ``<unk>`` vanish."""
        text: str = self._processor.decode([int(token) for token in ids])
        return text

    def normalise(self, text: str) -> str:
        """Return a text as the model sees it: folded and normalised, words still apart."""
        normalised: str = self._processor.normalize(text)
        return normalised.replace(WORD_START, " ").strip()

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._model = state["model"]
        self._open(None)

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, fingerprint='{self.fingerprint}')"

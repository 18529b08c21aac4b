"""A vocabulary from a transformers folder, and for each of its ids the row of that model's embedding table.

Two kinds of folder are read. One that `write_hf_tokenizer` wrote has our own SentencePiece model, and the rows are
the ids. One shaped like XLM-R has `sentencepiece.bpe.model` with ``<unk> <s> </s>`` first and no ``<pad>`` or
``<mask>``; its embedding table has the order of fairseq: ``<s> <pad> </s> <unk>``, every piece one row further down
than in the model, ``<mask>`` last (SOURCE: transformers, models/xlm_roberta/tokenization_xlm_roberta.py and
`XLMRobertaConverter` in convert_slow_tokenizer.py). The weights are not touched here: ``table[ids]`` is the table in our order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xlm.errors import UserError
from xlm.interop.tokenizer_export import CONFIG_FILE, FINGERPRINT_KEY, TOKENIZER_FILE, inexact_remark
from xlm.vocab.parts import Piece, PieceKind, inexact_scores, read_parts, with_exact_scores, with_pieces
from xlm.vocab.spec import SPECIAL_PIECES
from xlm.vocab.vocabulary import MODEL_FILE, Vocabulary

XLMR_MODEL_FILE = "sentencepiece.bpe.model"
# Where fairseq puts <pad> <unk> <s> </s>; <mask> comes last.
_FAIRSEQ_ROWS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
_FAIRSEQ_SHIFT = 1
_XLMR_FIRST = ("<unk>", "<s>", "</s>")

Json = dict[str, Any]


@dataclass(frozen=True)
class ImportedVocabulary:
    """A vocabulary in our order, ``ids`` [size] int64 (the row of their table for each of our ids) and what was noticed."""

    vocabulary: Vocabulary
    ids: npt.NDArray[np.int64]
    remarks: tuple[str, ...] = ()


def read_hf_vocabulary(folder: Path, *, round_scores: bool = False) -> ImportedVocabulary:
    """Read the vocabulary of a transformers folder; raises UserError for tokenizers that have no equal here.

    A piece without a row is an error. Scores stay as
    they are, so that ids are those of the SentencePiece model, unless they are to be rounded (`with_exact_scores`).
    """
    if (folder / XLMR_MODEL_FILE).is_file():
        return _about_scores(_read_xlmr(folder), round_scores=round_scores)
    if (folder / MODEL_FILE).is_file():
        return _about_scores(_read_ours(folder), round_scores=round_scores)
    raise UserError(_what_else(folder), file=folder)


def _about_scores(read: ImportedVocabulary, *, round_scores: bool) -> ImportedVocabulary:
    """Say, or undo, that scores of the model do not add up without rounding."""
    model = read.vocabulary.serialized_model
    inexact = inexact_scores(model)
    if not inexact:
        return read
    if round_scores:
        remark = f"the scores of {inexact:,} pieces were rounded to multiples of 1/64, so that a word may be cut into other pieces."
        return ImportedVocabulary(Vocabulary(with_exact_scores(model)), read.ids, (*read.remarks, remark))
    return ImportedVocabulary(read.vocabulary, read.ids, (*read.remarks, f"{inexact_remark(inexact)}; --round-scores makes them so."))


def _read_ours(folder: Path) -> ImportedVocabulary:
    path = folder / MODEL_FILE
    vocabulary = Vocabulary(path.read_bytes(), file=path)
    recorded = _json(folder / CONFIG_FILE).get(FINGERPRINT_KEY)
    if recorded not in (None, vocabulary.fingerprint):
        raise UserError(
            f"{CONFIG_FILE} beside it was written for the vocabulary {recorded}, this is {vocabulary.fingerprint}; "
            "copy spm.model from the folder that was exported.",
            file=path,
        )
    rows = np.arange(vocabulary.size, dtype=np.int64)
    _check_table(folder, rows)
    return ImportedVocabulary(vocabulary, rows)


def _read_xlmr(folder: Path) -> ImportedVocabulary:
    path = folder / XLMR_MODEL_FILE
    model = path.read_bytes()
    parts = read_parts(model, file=path)
    first = tuple(piece.text for piece in parts.pieces[: len(_XLMR_FIRST)])
    learned = parts.pieces[len(_XLMR_FIRST) :]
    taken = sorted({piece.text for piece in learned} & set(SPECIAL_PIECES))
    if sorted(first) != sorted(_XLMR_FIRST) or taken:
        raise UserError(
            f"an XLM-R model begins with {' '.join(_XLMR_FIRST)} and has no other special piece; this one begins with "
            f"{' '.join(first)}{' and also has ' + ' '.join(taken) if taken else ''}, so its rows cannot be told.",
            file=path,
        )
    special = tuple(Piece(text, 0.0, PieceKind.UNKNOWN if text == "<unk>" else PieceKind.CONTROL) for text in SPECIAL_PIECES)
    # Their class knows no byte pieces: it gives <unk> where the model would spell a character in bytes.
    unused = sum(piece.kind is PieceKind.BYTE for piece in learned)
    learned = tuple(Piece(p.text, p.score, PieceKind.UNUSED) if p.kind is PieceKind.BYTE else p for p in learned)
    vocabulary = Vocabulary(with_pieces(model, special + learned, byte_fallback=False), file=path)
    mask_row = len(parts.pieces) + _FAIRSEQ_SHIFT
    rows = np.array(
        [_FAIRSEQ_ROWS.get(text, mask_row) for text in SPECIAL_PIECES]
        + [number + _FAIRSEQ_SHIFT for number in range(len(_XLMR_FIRST), len(parts.pieces))],
        dtype=np.int64,
    )
    _check_their_tokenizer(folder, vocabulary, rows)
    _check_table(folder, rows)
    remarks: tuple[str, ...] = ()
    if unused:
        remarks = (f"the {unused} byte pieces of its model are never used, as in transformers, which gives <unk> instead.",)
    return ImportedVocabulary(vocabulary, rows, remarks)


def _check_table(folder: Path, rows: npt.NDArray[np.int64]) -> None:
    """Raise UserError where a piece has no row in the embedding table, whose number of rows is in config.json."""
    path = folder / "config.json"
    table = _json(path).get("vocab_size")
    needed = int(rows.max()) + 1
    if table is None:
        return
    if not isinstance(table, int) or table < needed:
        last = "<mask>" if rows[len(SPECIAL_PIECES) - 1] == needed - 1 else "the last piece"
        raise UserError(
            f"vocab_size is {table}, but the tokenizer beside it has {needed:,} rows; {last} has none. Give the model that row "
            f"(model.resize_token_embeddings({needed})) and save it again, or put the tokenizer here that it was trained with.",
            file=path,
        )


def _check_their_tokenizer(folder: Path, vocabulary: Vocabulary, rows: npt.NDArray[np.int64]) -> None:
    """Compare with tokenizer.json, where there is one: transformers takes its pieces from there."""
    path = folder / TOKENIZER_FILE
    pieces = _json(path).get("model", {}).get("vocab")
    if pieces is None:
        return
    if not isinstance(pieces, list):
        raise UserError(
            "this is no Unigram tokenizer, but an XLM-R model lies beside it; remove the one that is not the model's.", file=path
        )
    for piece, row in zip(vocabulary.pieces, rows.tolist(), strict=True):
        found = pieces[row][0] if row < len(pieces) else None
        if found != piece:
            raise UserError(
                f"row {row:,} is {'missing' if found is None else repr(found)} here and {piece!r} in {XLMR_MODEL_FILE}; "
                "one of the two files belongs to another model.",
                file=path,
            )


def _what_else(folder: Path) -> str:
    """Return the sentence for a folder that has neither model."""
    tokenizer = _json(folder / TOKENIZER_FILE)
    if FINGERPRINT_KEY in _json(folder / CONFIG_FILE):
        return f"{MODEL_FILE} is missing: transformers does not save it again; copy it here from the folder that was exported."
    model = tokenizer.get("model", {})
    kind = model.get("type") or ("WordPiece" if (folder / "vocab.txt").is_file() else None)
    byte_level = "ByteLevel" in json.dumps([tokenizer.get("pre_tokenizer"), tokenizer.get("decoder")])
    if kind is None and (folder / "merges.txt").is_file():
        kind, byte_level = "BPE", True
    if kind is None:
        return (
            f"there is no tokenizer here that can be read: {MODEL_FILE} (of an exported folder) or {XLMR_MODEL_FILE} (of XLM-R and its "
            "kin) is needed."
        )
    if kind == "Unigram":
        return f"this Unigram tokenizer has no {XLMR_MODEL_FILE} beside it; copy the SentencePiece model it was converted from here."
    named = "byte-level BPE" if byte_level and kind == "BPE" else kind
    return (
        f"this is a {named} tokenizer, and vocabularies here are SentencePiece models, which cannot give its ids; "
        "only folders shaped like XLM-R's, or exported from here, can be taken over."
    )


def _json(path: Path) -> Json:
    """Return a JSON file's object, empty where there is no file; raises UserError for a damaged one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UserError("this is not JSON, or damaged; copy it again.", file=path) from None
    return content if isinstance(content, dict) else {}

"""A vocabulary as a folder that transformers' `AutoTokenizer` loads, with the same ids for the same text.

The `tokenizers` library differs from SentencePiece in three places, and each has its remedy here:

- *Text that spells a special piece.* SentencePiece never finds ``<mask>`` or the byte piece ``<0x41>`` in text; a Unigram
  model of `tokenizers` finds whatever its list of pieces holds. Spaces become the word sign before the model sees
  a text, so a space is free there, and stands for ``<``: in the text (the last step of the normaliser) and in
  the ordinary pieces, but not in special and byte pieces, which therefore never match. The decoder puts ``<`` back. What
  is traded: `tokenize` and `get_vocab` show the piece ``▁<`` as ``▁`` and a space.
- *Special tokens are looked for in raw text before anything else*, unless `split_special_tokens` is set:
  tokenizer_config.json sets it, and tokenizer.json lists no added tokens, so that the bare library does not look for them
  either (transformers adds them as it loads). What is traded: to write ``<mask>`` in a text, as the fill-mask pipeline does, say so:
  ``tokenizer(text, split_special_tokens=False)``, or once ``tokenizer.split_special_tokens = False``.
- *Normalisation*: see `tokenizer_normalisation.py`.

What stays different: scores are added in double precision there and in single precision in SentencePiece, so where two
segmentations of a word are equally likely to seven digits, either may be chosen; ``<unk>`` is decoded as its name or
left out, SentencePiece writes a sign of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xlm.errors import UserError
from xlm.interop.tokenizer_normalisation import normaliser_of
from xlm.vocab.parts import ModelParts, Piece, PieceKind, read_parts
from xlm.vocab.spec import SPECIAL_PIECES
from xlm.vocab.vocabulary import MODEL_FILE, WORD_START, Vocabulary

TOKENIZER_FILE, CONFIG_FILE, SPECIAL_TOKENS_FILE = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
FINGERPRINT_KEY = "xlm_vocabulary_fingerprint"
_BRACKET = " "  # stands for "<", see above
_UNLIMITED = 1_000_000_000  # more spaces than a text begins with

Json = dict[str, Any]


def write_hf_tokenizer(vocabulary: Vocabulary, folder: Path, *, max_length: int, token_types: int = 1) -> None:
    """Write tokenizer.json, its two configuration files and spm.model; ``max_length`` in tokens with special ones.

    A text becomes ``<s> text </s>``, a pair ``<s> a </s> b </s>`` (the default TLM form). With two
    ``token_types`` the second text and its ``</s>`` are of type 1. Raises UserError for a model that has no equal there.
    """
    document = tokenizer_document(vocabulary, token_types=token_types)
    pad, unk, bos, eos, mask = SPECIAL_PIECES
    special = {
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": unk,
        "sep_token": eos,
        "pad_token": pad,
        "cls_token": bos,
        "mask_token": mask,
    }
    added = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config = {
        **special,
        "added_tokens_decoder": {str(number): {"content": piece, **added} for number, piece in enumerate(SPECIAL_PIECES)},
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"] if token_types > 1 else ["input_ids", "attention_mask"],
        "model_max_length": max_length,
        "split_special_tokens": True,
        "tokenizer_class": "PreTrainedTokenizerFast",
        FINGERPRINT_KEY: vocabulary.fingerprint,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL_FILE).write_bytes(vocabulary.serialized_model)
    for name, content in ((TOKENIZER_FILE, document), (CONFIG_FILE, config), (SPECIAL_TOKENS_FILE, special)):
        text = json.dumps(content, ensure_ascii=False, indent=None if name == TOKENIZER_FILE else 2)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def inexact_remark(count: int) -> str:
    """Return what follows from ``count`` pieces whose scores do not add up without rounding."""
    return (
        f"the scores of {count:,} pieces are no multiples of 1/64: where two cuts of a word are equally likely to seven digits, "
        "transformers may give other ids than SentencePiece, which the model reads"
    )


def tokenizer_document(vocabulary: Vocabulary, *, token_types: int = 1) -> Json:
    """Return the content of tokenizer.json; raises UserError for a model that has no equal there."""
    parts = read_parts(vocabulary.serialized_model)
    _refuse_what_has_no_equal(parts)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normaliser_of(parts, bracket=_BRACKET),
        "pre_tokenizer": _pre_tokenizer(parts),
        "post_processor": _post_processor(vocabulary, second_type=1 if token_types > 1 else 0),
        "decoder": _decoder(parts),
        "model": _unigram(parts) if parts.model_type == "unigram" else _bpe(parts),
    }


def _refuse_what_has_no_equal(parts: ModelParts) -> None:
    def refuse(found: str, instead: str) -> None:
        raise UserError(f"this vocabulary {found}, which cannot be written as a tokenizer.json with the same ids; {instead}.")

    if parts.model_type not in ("unigram", "bpe"):
        refuse(f"is a SentencePiece model of type {parts.model_type}", "unigram and bpe can")
    if parts.whitespace_as_suffix:
        refuse("has the word sign at the end of words", "train it with treat_whitespace_as_suffix off")
    if not parts.escape_whitespaces:
        refuse("keeps spaces as they are", "train it with escape_whitespaces on")
    named = [piece.text for piece in parts.pieces if piece.kind is PieceKind.USER_DEFINED]
    if named:
        refuse(f"has user-defined pieces ({' '.join(named[:5])})", "train it with control symbols instead")


def _name(piece: Piece) -> str:
    """Return the text of a piece as the model there has it: ordinary ones with ``<`` replaced, unused ones out of reach."""
    if piece.kind is PieceKind.UNUSED:
        return f"<{_BRACKET}{piece.text}"
    if piece.kind is PieceKind.BYTE:  # where no piece has "<", the byte that is looked up is that of what stands for it
        return {"<0x3C>": "<0x20>", "<0x20>": "<0x3C>"}.get(piece.text, piece.text)
    return piece.text.replace("<", _BRACKET) if piece.kind is PieceKind.NORMAL else piece.text


def _unigram(parts: ModelParts) -> Json:
    # Unknown characters cost ten more than the least likely ordinary piece; others must not count there.
    least = min((piece.score for piece in parts.pieces if piece.kind is PieceKind.NORMAL), default=0.0)
    vocabulary = [[_name(piece), piece.score if piece.kind is PieceKind.NORMAL else least] for piece in parts.pieces]
    return {"type": "Unigram", "unk_id": _unknown(parts), "vocab": vocabulary, "byte_fallback": parts.byte_fallback}


def _bpe(parts: ModelParts) -> Json:
    """Return a BPE model whose merges are every way to join two pieces into a third, best piece first."""
    ranked = sorted((-piece.score, number, _name(piece)) for number, piece in enumerate(parts.pieces) if piece.kind is PieceKind.NORMAL)
    known = {name for _, _, name in ranked}
    merges = [
        [name[:cut], name[cut:]] for _, _, name in ranked for cut in range(1, len(name)) if name[:cut] in known and name[cut:] in known
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": parts.pieces[_unknown(parts)].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": parts.byte_fallback,
        "ignore_merges": False,
        "vocab": {_name(piece): number for number, piece in enumerate(parts.pieces)},
        "merges": merges,
    }


def _unknown(parts: ModelParts) -> int:
    return next(number for number, piece in enumerate(parts.pieces) if piece.kind is PieceKind.UNKNOWN)


def _pre_tokenizer(parts: ModelParts) -> Json | None:
    """Return the cut before each word, which only saves time: none where a piece reaches over it."""
    ordinary = {piece.text for piece in parts.pieces if piece.kind is PieceKind.NORMAL}
    across = any(WORD_START in text[1:] for text in ordinary)
    # Unknown characters side by side are one token, and so is an unknown word sign with what is around it.
    known = WORD_START in ordinary or parts.byte_fallback
    if across or not known:
        return None
    return {"type": "Split", "pattern": {"String": WORD_START}, "behavior": "MergedWithNext", "invert": False}


def _post_processor(vocabulary: Vocabulary, *, second_type: int) -> Json:
    def special(piece: str, type_id: int) -> Json:
        return {"SpecialToken": {"id": piece, "type_id": type_id}}

    def sequence(name: str, type_id: int) -> Json:
        return {"Sequence": {"id": name, "type_id": type_id}}

    _, _, bos, eos, _ = SPECIAL_PIECES
    ids = {bos: vocabulary.bos_id, eos: vocabulary.eos_id}
    single = [special(bos, 0), sequence("A", 0), special(eos, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", second_type), special(eos, second_type)],
        "special_tokens": {piece: {"id": piece, "ids": [number], "tokens": [piece]} for piece, number in ids.items()},
    }


def _decoder(parts: ModelParts) -> Json:
    def replace(text: str, content: str) -> Json:
        return {"type": "Replace", "pattern": {"String": text}, "content": content}

    # SentencePiece leaves out every leading space where it removes extra ones, else the one it has put there.
    leading = _UNLIMITED if parts.remove_extra_whitespaces else int(parts.add_dummy_prefix)
    # Bytes first: afterwards "<" is there again, and an ordinary piece could look like a byte.
    steps: list[Json] = [{"type": "ByteFallback"}] if parts.byte_fallback else []
    steps += [replace(_BRACKET, "<"), replace(WORD_START, " "), {"type": "Fuse"}]
    return {"type": "Sequence", "decoders": [*steps, {"type": "Strip", "content": " ", "start": leading, "stop": 0}]}

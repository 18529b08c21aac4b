"""A text or a pair that somebody types, laid out and masked as a row of training would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from xlm.batching.collate import PlacedRows, collate
from xlm.batching.contrastive import contrastive_rows
from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_rows
from xlm.batching.packed_batch import PackedBatch
from xlm.batching.packed_rows import Ids, PackedRows
from xlm.batching.row_builder import pair_key_id
from xlm.batching.texts import Pieces, Texts
from xlm.batching.tlm import tlm_rows
from xlm.codeswitch.tags import Run, tag_by_script
from xlm.config.phases import Objective
from xlm.errors import UserError
from xlm.seeding import key_digest
from xlm.vocab.vocabulary import Vocabulary

_ONE = np.ones(1, dtype=np.int64)


def given_pair(vocabulary: Vocabulary, pair: tuple[str, str], objective: Objective, *, mask_rate: float, seed: int) -> PackedBatch:
    """Return a batch that holds one pair; language ids are 0 for its first text and 1 for its second.

    Raises UserError for an objective that takes no pairs and for a text without tokens.
    """
    sources, targets = (Texts.of([_encoded(vocabulary, text)]) for text in pair)
    languages = np.array([[0, 1]], dtype=np.int64)
    if objective == "contrastive":
        key = np.array([pair_key_id("\t".join(pair))], dtype=np.int64)
        return _batch(contrastive_rows(sources, targets, _ONE, languages, key, pieces=vocabulary))
    if objective != "tlm":
        raise UserError(f"a pair cannot be shown as {objective}; use --objective tlm or contrastive, or --text.")
    return _batch(
        tlm_rows(
            sources,
            targets,
            _ONE,
            languages,
            pieces=vocabulary,
            masker=Masker(vocabulary),
            mask_rate=mask_rate,
            keys=[key_digest("given pair", seed, *pair)],
        )
    )


def given_text(
    vocabulary: Vocabulary, text: str, objective: Objective, languages: Sequence[str], *, mask_rate: float, seed: int
) -> tuple[PackedBatch, tuple[str, ...]]:
    """Return a batch that holds one text, and the languages that its language ids stand for.

    With several ``languages``, or text in a script of none of them, each token gets the language of its
    script; punctuation goes with the token before it. Raises UserError for an objective that needs a
    pair and for a text without tokens.
    """
    if objective != "mlm":
        raise UserError(f"a single text cannot be shown as {objective}; use --objective mlm, or give a --pair.")
    ids, offsets = vocabulary.encode_with_offsets(text)
    _check_tokens(ids, text)
    rows = mlm_rows(
        Texts.of([ids]),
        _ONE,
        np.zeros(1, dtype=np.int64),
        pieces=vocabulary,
        masker=Masker(vocabulary),
        mask_rate=mask_rate,
        keys=[key_digest("given text", seed, text)],
    )
    tags = _token_languages(tag_by_script(text, languages), offsets, languages[0])
    named = tuple(dict.fromkeys([*languages, *tags]))
    token_languages = [named.index(tag) for tag in (tags[0], *tags, tags[-1])]  # <s> and </s> go with their neighbours
    return replace(_batch(rows), language_ids=torch.tensor(token_languages)), named


def _token_languages(runs: Sequence[Run], offsets: Ids, default: str) -> list[str]:
    """Give each token [tokens, 2] the language of the first run inside it that has one, else that of its neighbour."""
    found: list[str | None] = []
    for begin, end in offsets.tolist():
        inside = (run.language for run in runs if run.start < end and run.end > begin and run.language is not None)
        found.append(next(inside, None) or (found[-1] if found else None))
    first = next((language for language in found if language is not None), default)
    return [language or first for language in found]


def _encoded(vocabulary: Vocabulary, text: str) -> Ids:
    ids: Ids = vocabulary.encode(text).astype(np.int64)
    _check_tokens(ids, text)
    return ids


def _check_tokens(ids: Pieces, text: str) -> None:
    if not ids.size:
        raise UserError(f"nothing is left of the text '{text}' after normalisation; give one with letters in it.")


def _batch(rows: PackedRows) -> PackedBatch:
    zero = np.zeros(1, dtype=np.int64)
    return collate([PlacedRows(rows, zero, zero)])

"""A text or a pair that somebody types, laid out and masked as a row of training would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from xlm.batching.collate import RowsOfBatch, collate
from xlm.batching.contrastive import pair_keys
from xlm.batching.objective_rows import RowMaker
from xlm.batching.packed_batch import PackedBatch
from xlm.batching.packed_rows import Ids
from xlm.batching.texts import Pieces, RowTexts
from xlm.batching.words import has_spaces
from xlm.codeswitch.tags import Run, tag_by_script
from xlm.config.phases import PAIR_OBJECTIVES, TEXT_OBJECTIVES, Objective, ObjectiveShare, Phase
from xlm.errors import UserError
from xlm.seeding import key_int64
from xlm.vocab.vocabulary import Vocabulary

# Objectives of two spans in one language; what is typed as a pair is A and the span that follows it.
SPAN_OBJECTIVES: tuple[Objective, ...] = ("nsp", "sop")


class TypedRows:
    """Lays typed texts out as a phase's rows; the same text and seed give the same masks."""

    def __init__(self, vocabulary: Vocabulary, phase: Phase, seed: int, piece_counts: NDArray[np.uint64] | None = None) -> None:
        """``piece_counts`` [vocabulary] are needed where the phase's masks depend on them."""
        self._vocabulary = vocabulary
        self._phase = phase
        self._seed = seed
        self._piece_counts = piece_counts

    def pair(self, pair: tuple[str, str], objective: Objective, languages: Sequence[str]) -> PackedBatch:
        """Return a batch that holds one pair, or two spans; language ids count ``languages``.

        Raises UserError for an objective that takes no pairs, a wrong number of languages and a text without tokens.
        """
        if objective not in (*PAIR_OBJECTIVES, *SPAN_OBJECTIVES):
            allowed = ", ".join((*PAIR_OBJECTIVES, *SPAN_OBJECTIVES))
            raise UserError(f"a pair cannot be shown as {objective}; use --objective with one of {allowed}, or --text.")
        sides = 2 if objective in PAIR_OBJECTIVES else 1
        if len(languages) != sides:
            wanted = "two --languages, in the order of the texts" if sides == 2 else "one of --languages, that of both spans"
            raise UserError(f"--pair as {objective} needs {wanted}; {len(languages)} given.")
        first, second = (self._encoded(text) for text in pair)
        if sides == 2:
            texts = RowTexts.of([[first], [second]], [0, 1], [1])
        else:
            # One item, so that the second span follows the first.
            texts = replace(RowTexts.of([[first, second]], [0], [2]), items=np.zeros(2, dtype=np.int64), offsets=np.array([0, first.size]))
        return self._batch(objective, texts, languages, key=pair)

    def text(self, text: str, objective: Objective, languages: Sequence[str]) -> tuple[PackedBatch, tuple[str, ...]]:
        """Return a batch that holds one text, and the languages that its language ids stand for.

        With several ``languages``, or text in a script of none of them, each token gets the language of its
        script; punctuation goes with the token before it. Whether words are told apart by spaces goes by the
        first language. Raises UserError for an objective that needs a pair and for a text without tokens.
        """
        if objective not in TEXT_OBJECTIVES:
            raise UserError(
                f"a single text cannot be shown as {objective}; use --objective with one of {', '.join(TEXT_OBJECTIVES)}, or give a --pair."
            )
        ids, offsets = self._vocabulary.encode_with_offsets(text)
        _check_tokens(ids, text)
        batch = self._batch(objective, RowTexts.of([[ids]], [0], [1]), languages[:1], key=(text,))
        tags = _token_languages(tag_by_script(text, languages), offsets, languages[0])
        named = tuple(dict.fromkeys([*languages, *tags]))
        token_languages = [named.index(tag) for tag in (tags[0], *tags, tags[-1])]  # <s> and </s> go with their neighbours
        return replace(batch, language_ids=torch.tensor(token_languages)), named

    def _batch(self, objective: Objective, texts: RowTexts, languages: Sequence[str], key: Sequence[str]) -> PackedBatch:
        spaced = np.array([has_spaces(language) for language in languages], dtype=np.bool_)
        maker = RowMaker(self._vocabulary, self._phase.masking, spaced, self._piece_counts)
        seeds = np.array([key_int64("typed", self._seed, *key)], dtype=np.uint64)
        options = self._phase.objectives.get(objective, ObjectiveShare(share=1.0))
        arrangement = maker.arrange(objective, options, texts, seeds)
        keys = pair_keys(["\t".join(key)], arrangement) if objective == "contrastive" else None
        rows = maker.make(objective, arrangement, texts, seeds, self._phase.mask_rate_at(0), keys)
        (batch,) = collate([RowsOfBatch(rows, np.zeros(1, dtype=np.int64))], [1])
        return batch

    def _encoded(self, text: str) -> Ids:
        ids: Ids = self._vocabulary.encode(text).astype(np.int64)
        _check_tokens(ids, text)
        return ids


def _token_languages(runs: Sequence[Run], offsets: Ids, default: str) -> list[str]:
    """Give each token [tokens, 2] the language of the first run inside it that has one, else that of its neighbour."""
    found: list[str | None] = []
    for begin, end in offsets.tolist():
        inside = (run.language for run in runs if run.start < end and run.end > begin and run.language is not None)
        found.append(next(inside, None) or (found[-1] if found else None))
    first = next((language for language in found if language is not None), default)
    return [language or first for language in found]


def _check_tokens(ids: Pieces, text: str) -> None:
    if not ids.size:
        raise UserError(f"nothing is left of the text '{text}' after normalisation; give one with letters in it.")

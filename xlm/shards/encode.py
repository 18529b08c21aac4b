"""Text to ids, each distinct text once.

In n-way parallel text the same English string stands in every pair corpus and again among the documents,
so encoding what was not seen before is several times less work than encoding everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xlm.vocab.vocabulary import Vocabulary

# About 300 MB of text and ids; from there on, new texts are encoded and not kept.
MAX_REMEMBERED_TOKENS = 24_000_000

Ids = npt.NDArray[Any]


class DistinctEncoder:
    """Encodes texts with one vocabulary and remembers the results."""

    def __init__(self, vocabulary: Vocabulary, max_remembered_tokens: int = MAX_REMEMBERED_TOKENS) -> None:
        self._vocabulary = vocabulary
        self._room = max_remembered_tokens
        self._remembered: dict[str, Ids] = {}

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, [tokens] in the vocabulary's token dtype."""
        new = list(dict.fromkeys(text for text in texts if text not in self._remembered))
        dtype = self._vocabulary.token_dtype
        found = {text: ids.astype(dtype) for text, ids in zip(new, self._vocabulary.encode_batch(new), strict=True)}
        if self._room > 0:
            self._remembered.update(found)
            self._room -= sum(map(len, found.values()))
        return [found[text] if text in found else self._remembered[text] for text in texts]

    def encode_with_sentences(self, text: str, sentence_starts: Sequence[int]) -> tuple[Ids, list[int]]:
        """Return a text's ids and the token offsets of sentences given by character offsets."""
        ids, offsets = self._vocabulary.encode_with_offsets(text)
        return ids.astype(self._vocabulary.token_dtype), token_starts(text, sentence_starts, offsets[:, 0])


def token_starts(text: str, character_starts: Sequence[int], token_begins: npt.NDArray[np.int64]) -> list[int]:
    """Return the tokens at which sentences begin, given the first character of each sentence and of each token.

    A token that begins a word covers the white space before it. A sentence that begins inside a token is
    left out: nothing may be cut there.
    """
    starts: list[int] = []
    for start in character_starts:
        first = start
        while first > 0 and text[first - 1].isspace():
            first -= 1
        token = int(np.searchsorted(token_begins, first))
        if token < len(token_begins) and token_begins[token] <= start and (not starts or token > starts[-1]):
            starts.append(token)
    return starts

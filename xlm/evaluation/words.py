"""Words as the encoder reads them: each is one piece, the one that holds its first character.

The first piece carries the label, as in BERT's and XTREME's tagging. The text is segmented as a whole, as in
pretraining, not word by word. Where no spaces stand between words (Chinese, Japanese) a piece may hold several
words of one character: they share its state, and what follows the first inside the piece continues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from xlm.codeswitch.tokens import tokenise as tokenise_words
from xlm.evaluation.encode import TOKENS_PER_BATCH, autocast
from xlm.evaluation.packing import Ids, TokenisedTexts, batches_by_length
from xlm.model.encoder import Encoder
from xlm.vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class WordTexts:
    """Texts with their words' pieces; ``continued[i][w]``: word w of text i stands in the piece of the word before it."""

    tokenised: TokenisedTexts
    continued: tuple[NDArray[np.bool_], ...]


def locate_words(vocabulary: Vocabulary, texts: Sequence[str], max_positions: int) -> WordTexts:
    """Segment texts as ``<s> text </s>`` and find the piece of every word.

    A longer text keeps its first ``max_positions`` - 2 pieces and is counted; words beyond them are read at ``</s>``.
    """
    room = max_positions - 2
    sequences, words, continued = [], [], []
    cut = 0
    for text in texts:
        ids, offsets = vocabulary.encode_with_offsets(text)
        cut += len(ids) > room
        sequences.append(np.array([vocabulary.bos_id, *ids[:room], vocabulary.eos_id], dtype=np.int64))
        starts = np.array([token.start for token in tokenise_words(text)], dtype=np.int64)
        # The last piece that begins at or before the word: a piece that begins a word may cover the space before it.
        pieces = np.searchsorted(offsets[:, 0], starts, side="right") - 1
        words.append(np.minimum(pieces + 1, len(sequences[-1]) - 1))
        continued.append(np.concatenate([np.zeros(1, dtype=bool), pieces[1:] == pieces[:-1]])[: len(pieces)])
    return WordTexts(TokenisedTexts(tuple(sequences), cut, tuple(words)), tuple(continued))


def encode_words(
    encoder: Encoder, tokenised: TokenisedTexts, layers: Sequence[int], *, language: int | None = None, precision: str = "fp32"
) -> NDArray[np.float32]:
    """Return the states of all words, text after text: [layers, words, width], fp32."""
    if tokenised.words is None:
        raise ValueError("texts without words")
    ends = np.cumsum([len(own) for own in tokenised.words])
    vectors = np.zeros((len(layers), int(ends[-1]) if len(ends) else 0, encoder.config.width), dtype=np.float32)
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode(), autocast(precision):
        for indices in batches_by_length(tokenised.lengths, TOKENS_PER_BATCH):
            batch = tokenised.packed(indices, language)
            states = encoder(batch.input_ids, batch.position_ids, batch.cu_seqlens, language_ids=batch.language_ids, return_layers=True)
            rows = word_rows(ends, indices)
            for number, layer in enumerate(layers):
                vectors[number, rows] = states[layer][batch.word_positions].float().numpy()
    encoder.train(was_training)
    return vectors


def word_rows(ends: Ids, texts: Sequence[int] | Ids) -> Ids:
    """Return the rows, in an array of all words, of the words of ``texts``; ``ends`` are running sums of words a text."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    rows: Ids = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(starts[text], starts[text + 1]) for text in texts)])
    return rows

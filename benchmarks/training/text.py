"""Made-up text in XLM-R's ids, masked and padded by the peer's own collator; ours is packed from what it gives.

Pieces follow a Zipf-Mandelbrot law, so that some are common and most are rare, as in text. Monolingual rows are full,
as `run_mlm` groups texts. Pairs are ``<s> source </s></s> target </s>``, XLM-R's form, on both sides, in random order.

`PAIR_PIECES` are quantiles of the pieces of source and target together, measured over 147,003 English-x pairs of Tatoeba,
SIB-200, a New Testament, the Quran, Wesnoth, LibreOffice's help and the Debian handbook, under a unigram model of
64,000 pieces trained on the same text; the 1 % that do not fit into 256 positions are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from training.cases import MASK_RATE, Case
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.seeding import key_int64, keyed_generator

START, PAD, STOP, UNKNOWN = 0, 1, 2, 3
FIRST_PIECE = 4
IGNORED = -100
PAIR_SPECIALS = 4
ZIPF_OFFSET = 2.7
# Per cent of the pairs : pieces of source and target together.
PAIR_PIECES = {
    0: 2, 5: 5, 10: 8, 20: 12, 30: 18, 40: 24, 50: 32, 60: 42, 70: 54, 80: 69, 90: 94, 95: 122, 98: 164, 99: 194, 100: 252,
}  # fmt: skip


@dataclass(frozen=True)
class Padded:
    """A micro-batch as the collator gives it; labels are ``IGNORED`` where nothing is predicted."""

    input_ids: Tensor  # [B, longest] int64
    attention_mask: Tensor  # [B, longest] int64, 0 on padding
    labels: Tensor  # [B, longest] int64

    @property
    def tokens(self) -> int:
        """Number of real tokens."""
        return int(self.attention_mask.sum())

    @property
    def predictions(self) -> int:
        """Number of positions with a label."""
        return int((self.labels != IGNORED).sum())


def padded_step(case: Case, step: int) -> list[Padded]:
    """Return the micro-batches of one optimizer step, ``case.texts`` each, the same in any process."""
    return list(_until(case.step_tokens, _micro_batches(case, step)))


def packed_step(case: Case, step: int) -> list[PackedBatch]:
    """Return the same step end to end, cut into micro-batches of at most ``micro_batch_tokens``.

    On monolingual rows these are the peer's micro-batches; pairs are regrouped, so that a micro-batch has about as many
    positions as the peer's.
    """
    sequences = [
        (ids[real], labels[real])
        for batch in padded_step(case, step)
        for ids, labels, real in zip(batch.input_ids, batch.labels, batch.attention_mask.bool(), strict=True)
    ]
    batches: list[PackedBatch] = []
    start = 0
    while start < len(sequences):
        end, tokens = start, 0
        while end < len(sequences) and tokens + len(sequences[end][0]) <= case.micro_batch_tokens:
            tokens += len(sequences[end][0])
            end += 1
        batches.append(pack(sequences[start:end]))
        start = end
    return batches


def pack(sequences: Sequence[tuple[Tensor, Tensor]]) -> PackedBatch:
    """Lay (ids [L], labels [L]) end to end."""
    lengths = [len(ids) for ids, _ in sequences]
    labels = torch.cat([each for _, each in sequences])
    positions = (labels != IGNORED).nonzero().squeeze(1)
    tokens, count = len(labels), len(lengths)
    objective, none = OBJECTIVE_CODE["mlm"], torch.full((count,), -1)
    return PackedBatch(
        input_ids=torch.cat([ids for ids, _ in sequences]),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        token_type_ids=torch.zeros(tokens, dtype=torch.int64),
        language_ids=torch.zeros(tokens, dtype=torch.int64),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        predict_positions=positions,
        labels=labels[positions],
        prediction_objective=torch.full((len(positions),), objective),
        sequence_objective=torch.full((count,), objective),
        pair_key=none,
        pair_index=none,
        sequence_label=none,
        row_id=torch.arange(count),
    )


def pair_pieces(generator: np.random.Generator, count: int) -> np.ndarray:
    """Draw the pieces of ``count`` pairs, source and target together, from the measured quantiles."""
    return np.interp(100 * generator.random(count), list(PAIR_PIECES), list(PAIR_PIECES.values())).round().astype(np.int64)


def _until(tokens: int, batches: Iterator[Padded]) -> Iterator[Padded]:
    while tokens > 0:
        batch = next(batches)
        tokens -= batch.tokens
        yield batch


def _micro_batches(case: Case, step: int) -> Iterator[Padded]:
    # Held-out text, of steps below 0, is the same for all seeds.
    key = ("benchmark", "train", case.kind, case.seed if step >= 0 else "held out", step)
    generator = keyed_generator(*key)
    collator = _collator(case.vocabulary, key_int64(*key))
    while True:
        collated = collator([_example(ids) for ids in _texts(case, generator)])
        # The collator may draw <pad> as a random piece; transformers would then count positions past it.
        ids, mask = collated["input_ids"], collated["attention_mask"]
        ids = ids.masked_fill((ids == PAD) & (mask == 1), FIRST_PIECE)
        yield Padded(ids, mask, collated["labels"])


def _texts(case: Case, generator: np.random.Generator) -> list[list[int]]:
    if case.kind == "monolingual":
        return [[START, *_pieces(case, generator, case.row_tokens - 2), STOP] for _ in range(case.rows)]
    texts = []
    for pieces in np.minimum(pair_pieces(generator, case.texts), case.row_tokens - PAIR_SPECIALS):
        source = _pieces(case, generator, pieces // 2)
        target = _pieces(case, generator, pieces - pieces // 2)
        texts.append([START, *source, STOP, STOP, *target, STOP])
    return texts


def _pieces(case: Case, generator: np.random.Generator, count: int) -> list[int]:
    shares = _cumulative_shares(case.vocabulary)
    ranks = np.searchsorted(shares, generator.random(count) * shares[-1], side="right")
    return (FIRST_PIECE + ranks).tolist()


def _example(ids: list[int]) -> dict[str, list[int]]:
    return {"input_ids": ids, "special_tokens_mask": [int(piece < FIRST_PIECE) for piece in ids]}


@lru_cache(maxsize=2)
def _cumulative_shares(vocabulary: int) -> np.ndarray:
    """Sum 1 / (rank + offset) over the pieces between the special ones and the mask, the last."""
    return np.cumsum(1.0 / (np.arange(vocabulary - FIRST_PIECE - 1) + ZIPF_OFFSET))


def _collator(vocabulary: int, seed: int) -> DataCollatorForLanguageModeling:
    return DataCollatorForLanguageModeling(_tokenizer(vocabulary), mlm_probability=MASK_RATE, seed=seed)


@lru_cache(maxsize=2)
def _tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Build a tokenizer that has nothing but the right number of pieces and the special ones at XLM-R's ids."""
    names = ["<s>", "<pad>", "</s>", "<unk>", *(f"piece{number}" for number in range(FIRST_PIECE, vocabulary - 1)), "<mask>"]
    words = WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>")
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), **special)

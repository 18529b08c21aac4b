"""Both sides get the same ids, masks and labels, of the lengths that were measured."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from training import text
from training.cases import MASK_RATE, Case
from training.text import FIRST_PIECE, IGNORED, PAD, PAIR_PIECES, START, STOP


def sequences_of_padded(batches):
    return [
        (ids[mask == 1].tolist(), labels[mask == 1].tolist())
        for batch in batches
        for ids, mask, labels in zip(batch.input_ids, batch.attention_mask, batch.labels, strict=True)
    ]


def sequences_of_packed(batches):
    found = []
    for batch in batches:
        labels = torch.full_like(batch.input_ids, IGNORED)
        labels[batch.predict_positions] = batch.labels
        bounds = batch.cu_seqlens.tolist()
        for start, end in pairwise(bounds):
            assert batch.position_ids[start:end].tolist() == list(range(end - start))
            found.append((batch.input_ids[start:end].tolist(), labels[start:end].tolist()))
    return found


def test_packed_is_padded_without_padding(case):
    padded, packed = text.padded_step(case, 3), text.packed_step(case, 3)
    assert sequences_of_packed(packed) == sequences_of_padded(padded)
    assert all(batch.tokens <= case.micro_batch_tokens for batch in packed)
    if case.kind == "monolingual":
        assert [batch.tokens for batch in packed] == [batch.tokens for batch in padded]


def test_a_step_has_its_tokens_and_no_micro_batch_too_many(case):
    batches = text.padded_step(case, 0)
    assert sum(batch.tokens for batch in batches[:-1]) < case.step_tokens <= sum(batch.tokens for batch in batches)
    assert {len(batch.input_ids) for batch in batches} == {case.texts}


def test_steps_are_repeatable_and_differ(case):
    again = sequences_of_padded(text.padded_step(case, 1))
    assert again == sequences_of_padded(text.padded_step(case, 1))
    assert again != sequences_of_padded(text.padded_step(case, 2))
    assert again != sequences_of_padded(text.padded_step(replace(case, seed=1), 1))


def test_held_out_text_is_the_same_for_all_seeds(case):
    held_out = sequences_of_padded(text.padded_step(case, -1))
    assert held_out == sequences_of_padded(text.padded_step(replace(case, seed=1), -1))


def test_padding_is_where_the_mask_says_and_nowhere_else(case):
    for batch in text.padded_step(replace(case, vocabulary=6), 0):  # random pieces hit <pad> often
        assert torch.equal(batch.input_ids == PAD, batch.attention_mask == 0)


def test_special_pieces_stand_at_the_ends_and_are_never_predicted(case):
    specials = [START, STOP] if case.kind == "monolingual" else [START, STOP, STOP, STOP]
    for ids, labels in sequences_of_padded(text.padded_step(case, 0)):
        original = [label if label != IGNORED else piece for piece, label in zip(ids, labels, strict=True)]
        assert [piece for piece in original if piece < FIRST_PIECE] == specials
        assert all(label == IGNORED or label >= FIRST_PIECE for label in labels)


def test_mask_rate():
    case = Case(32, 2, 2, "monolingual", "fp32", rows=32, rounds=1, vocabulary=500, row_tokens=256, step_tokens=60_000)
    batches = text.padded_step(case, 0)
    share = sum(batch.predictions for batch in batches) / sum(batch.tokens for batch in batches)
    assert abs(share - MASK_RATE * 254 / 256) < 4 * np.sqrt(MASK_RATE / 60_000)


def test_pairs_have_the_measured_lengths():
    drawn = text.pair_pieces(np.random.default_rng(0), 200_000)
    for share, pieces in PAIR_PIECES.items():
        assert abs(np.quantile(drawn, share / 100) - pieces) <= max(1, 0.02 * pieces)


def test_common_pieces_are_common():
    case = Case(32, 2, 2, "monolingual", "fp32", rows=32, rounds=1, vocabulary=5_000, row_tokens=256, step_tokens=60_000)
    counts = Counter(piece for ids, _ in sequences_of_padded(text.padded_step(case, 0)) for piece in ids)
    # Zipf-Mandelbrot: the first piece against the eleventh, (10 + 2.7) / 2.7; masks take the same share of both.
    assert 3.9 < counts[FIRST_PIECE] / counts[FIRST_PIECE + 10] < 5.6

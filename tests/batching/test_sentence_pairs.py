from dataclasses import replace

import numpy as np

from xlm.batching.arrangement import lay_out
from xlm.batching.sentence_pairs import next_sentence, sentence_order
from xlm.batching.texts import RowTexts


def units(*, items, offsets):
    """Two units, A of 2 and B of 3 pieces each, in two rows."""
    texts = RowTexts.of([[np.array(ids) for ids in ([10, 11], [20, 21, 22], [30, 31], [40, 41, 42])]], [6], [2, 2])
    return replace(texts, items=np.array(items), offsets=np.array(offsets))


def test_next_sentences_by_hand(pieces):
    # The first B follows its A; the second is of another document, though its offset would fit.
    texts = units(items=[7, 7, 7, 8], offsets=[4, 6, 4, 6])
    arrangement = next_sentence(texts, pieces)
    laid = lay_out(arrangement, texts, eos_id=3)
    assert laid.ids.tolist() == [2, 10, 11, 3, 20, 21, 22, 3, 2, 30, 31, 3, 40, 41, 42, 3]
    assert laid.token_types.tolist() == [0, 0, 0, 0, 1, 1, 1, 1] * 2
    assert laid.positions.tolist() == [*range(8)] * 2
    assert laid.lengths.tolist() == [8, 8]
    assert arrangement.sequences_per_row.tolist() == [1, 1]
    assert arrangement.sequence_labels.tolist() == [0, 1]


def test_a_span_of_the_same_document_that_does_not_follow_is_no_next_sentence(pieces):
    assert next_sentence(units(items=[7, 7, 7, 7], offsets=[4, 6, 4, 9]), pieces).sequence_labels.tolist() == [0, 1]


def test_spans_are_swapped_by_the_seed(pieces):
    texts = units(items=[7, 7, 8, 8], offsets=[4, 6, 0, 2])
    seen = set()
    for seed in range(16):
        arrangement = sentence_order(texts, np.array([seed, seed + 100], dtype=np.uint64), pieces)
        laid = lay_out(arrangement, texts, eos_id=3)
        labels = tuple(arrangement.sequence_labels.tolist())
        first, second = laid.ids[:8].tolist(), laid.ids[8:].tolist()
        assert first == ([2, 20, 21, 22, 3, 10, 11, 3] if labels[0] else [2, 10, 11, 3, 20, 21, 22, 3])
        assert second == ([2, 40, 41, 42, 3, 30, 31, 3] if labels[1] else [2, 30, 31, 3, 40, 41, 42, 3])
        assert laid.token_types[:8].tolist() == ([0, 0, 0, 0, 0, 1, 1, 1] if labels[0] else [0, 0, 0, 0, 1, 1, 1, 1])
        seen.add(labels)
    assert seen == {(0, 0), (0, 1), (1, 0), (1, 1)}

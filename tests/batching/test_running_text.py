import numpy as np

from xlm.batching.arrangement import lay_out
from xlm.batching.running_text import documents, full_sentences
from xlm.batching.texts import RowTexts

TEXTS = RowTexts.of([[np.array(ids, dtype=np.uint16) for ids in ([10, 11, 12], [20], [30, 31])]], [5], [2, 1])


def test_documents_are_sequences_of_their_own(pieces):
    arrangement = documents(TEXTS, pieces)
    laid = lay_out(arrangement, TEXTS, eos_id=3)
    assert laid.ids.tolist() == [2, 10, 11, 12, 3, 2, 20, 3, 2, 30, 31, 3]
    assert laid.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]
    assert laid.token_types.tolist() == [0] * 12
    assert laid.languages.tolist() == [5] * 12
    assert laid.lengths.tolist() == [5, 3, 4]
    assert arrangement.sequences_per_row.tolist() == [2, 1]
    assert laid.ids.dtype == np.int64


def test_full_sentences_are_one_sequence_a_row(pieces):
    # RoBERTa (Liu et al. 2019), FULL-SENTENCES: a separator between documents.
    arrangement = full_sentences(TEXTS, pieces)
    laid = lay_out(arrangement, TEXTS, eos_id=3)
    assert laid.ids.tolist() == [2, 10, 11, 12, 3, 20, 3, 2, 30, 31, 3]
    assert laid.positions.tolist() == [*range(7), *range(4)]
    assert laid.lengths.tolist() == [7, 4]
    assert arrangement.sequences_per_row.tolist() == [1, 1]

import numpy as np

from xlm.batching.arrangement import lay_out
from xlm.batching.clm import next_pieces
from xlm.batching.running_text import documents, full_sentences
from xlm.batching.texts import RowTexts

TEXTS = RowTexts.of([[np.array([10, 11]), np.array([20])]], [0], [2])


def test_every_position_but_the_last_of_a_sequence_predicts_the_next_piece(pieces):
    positions, labels = next_pieces(lay_out(documents(TEXTS, pieces), TEXTS, eos_id=3))
    assert positions.tolist() == [0, 1, 2, 4, 5]
    assert labels.tolist() == [10, 11, 3, 20, 3]


def test_a_separator_does_not_end_a_sequence(pieces):
    positions, labels = next_pieces(lay_out(full_sentences(TEXTS, pieces), TEXTS, eos_id=3))
    assert positions.tolist() == [0, 1, 2, 3, 4]
    assert labels.tolist() == [10, 11, 3, 20, 3]

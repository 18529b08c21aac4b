import torch
from made_up_steps import make_rows, pack

from xlm.training.ballast import Targets, with_a_token


def test_a_batch_with_tokens_is_left_alone_and_an_empty_one_gets_a_sequence_of_no_objective():
    batch = pack(make_rows(0))
    assert with_a_token(batch) is batch
    filled = with_a_token(pack([]))
    assert (filled.tokens, filled.sequences, filled.predict_positions.numel()) == (1, 1, 0)
    assert filled.sequence_objective.tolist() == filled.sequence_label.tolist() == [-1]


def test_a_head_without_a_question_is_asked_one_that_counts_nothing():
    none, some = torch.zeros(0, dtype=torch.int64), torch.tensor([3, 5])
    asked = Targets(some, some, torch.ones(2))
    assert asked.or_ballast() is asked
    stand_in = Targets(none, none, torch.ones(0), measures=none).or_ballast()
    assert stand_in.ballast
    assert stand_in.measures is None
    assert stand_in.tokens.tolist() == [0]
    assert stand_in.weights.tolist() == [0.0]

import pytest
import torch
from made_up_steps import CODES, EVERYTHING, OBJECTIVES, deal, make_rows, pack

from xlm.batching.packed_batch import OBJECTIVE_CODE
from xlm.training.step_context import BatchCounts, StepContext

ROWS = make_rows(0, token_rows=12, objectives=EVERYTHING)
CPU = torch.device("cpu")


def test_counts_are_those_of_the_sequences():
    counts = BatchCounts.of([pack(ROWS)])
    sequences = [one for row in ROWS for one in row]
    assert counts.predictions == sum(len(one["labels"]) for one in sequences)
    assert counts.sentence_labels == sum(CODES[one["objective"]] in ("nsp", "sop") for one in sequences) > 0
    assert counts.rtd_tokens == sum(len(one["ids"]) for one in sequences if CODES[one["objective"]] == "rtd") > 0
    assert counts.pairs == sum(CODES[one["objective"]] == "contrastive" for one in sequences) // 2 > 0


@pytest.mark.parametrize(("world_size", "micro_steps"), [(1, 3), (3, 2)])
def test_a_step_counts_the_same_however_it_is_split(world_size, micro_steps):
    by_rank = tuple(BatchCounts.of(deal(ROWS, world_size, micro_steps, rank)) for rank in range(world_size))
    split, whole = StepContext(by_rank, OBJECTIVES, 0, 0), StepContext((BatchCounts.of([pack(ROWS)]),), OBJECTIVES, 0, 0)
    for name in ("predictions", "sentence_labels", "rtd_tokens", "pairs"):
        assert getattr(split, name) == getattr(whole, name)
    assert BatchCounts(*by_rank[0].numbers()) == by_rank[0]


def test_nothing_to_divide_by_is_one():
    empty = StepContext((BatchCounts.of([pack([])]),), OBJECTIVES, 0, 0)
    assert (empty.predictions, empty.sentence_labels, empty.rtd_tokens, empty.pairs) == (1, 1, 1, 0)


def test_pairs_after_the_first_micro_batch_are_a_bug():
    with pytest.raises(RuntimeError, match="outside the first micro-batch"):
        BatchCounts.of([pack([]), pack(ROWS)])


def test_weights_are_the_phases_and_zero_for_what_it_does_not_have():
    context = StepContext((BatchCounts.of([pack(ROWS)]),), {name: OBJECTIVES[name] for name in ("mlm", "nsp")}, 0, 0)
    weights, of_sentences = context.loss_weights(CPU), context.sentence_weights(CPU)
    assert weights[OBJECTIVE_CODE["mlm"]] == 1.0
    assert weights[OBJECTIVE_CODE["nsp"]] == pytest.approx(1.1)
    assert of_sentences[OBJECTIVE_CODE["nsp"]] == pytest.approx(1.1 * 0.6)
    assert int((weights != 0).sum()) == 2
    assert context.discriminator_weight == 0.0
    assert StepContext(context.by_rank, OBJECTIVES, 0, 0).discriminator_weight == pytest.approx(0.4 * 3.0)

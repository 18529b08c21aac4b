import pytest
import torch
from made_up_steps import CODES, COMPLETE, LANGUAGES, OBJECTIVES, VOCABULARY, make_rows, pack

from xlm.model.pretraining import PretrainingModel
from xlm.training.sentence_part import SentencePart
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext

ROWS = make_rows(1, token_rows=9, pair_rows=0, objectives=("nsp", "mlm", "sop"))


def made(rows):
    statistics = LossStatistics(("only",), LANGUAGES, torch.device("cpu"))
    model = PretrainingModel(COMPLETE, VOCABULARY, len(LANGUAGES))
    model.initialise(3)
    part, batch = SentencePart(model.sentence_head, statistics), pack(rows)
    targets = part.targets(batch, StepContext((BatchCounts.of([batch]),), OBJECTIVES, 0, 0))
    return part, batch, targets, statistics


def test_first_tokens_of_labelled_sequences_are_asked_with_the_weights_of_their_objective():
    _, batch, targets, _ = made(ROWS)
    labelled = [one for row in ROWS for one in row if one["label"] >= 0]
    starts = [start for start, label in zip(batch.cu_seqlens.tolist(), batch.sequence_label.tolist(), strict=False) if label >= 0]
    assert targets.tokens.tolist() == starts
    assert targets.labels.tolist() == [one["label"] for one in labelled]
    weights = {name: OBJECTIVES[name].loss_weight * OBJECTIVES[name].sentence_weight for name in ("nsp", "sop")}
    assert targets.weights.tolist() == pytest.approx([weights[CODES[one["objective"]]] / len(labelled) for one in labelled])


def test_losses_are_counted_apart_for_both_objectives():
    part, batch, targets, statistics = made(ROWS)
    part.loss(batch, torch.randn(len(targets.tokens), 16), targets)
    statistics.commit_step(True)
    counts = statistics.take_window().counts
    for name in ("nsp", "sop"):
        found = sum(count for (measure, _), count in counts.items() if measure == f"{name}_sentence")
        assert found == sum(CODES[one["objective"]] == name for row in ROWS for one in row)
    assert {measure for measure, _ in counts} == {"nsp_sentence", "sop_sentence"}


def test_without_labels_the_head_is_asked_all_the_same_and_nothing_is_counted():
    part, batch, targets, statistics = made(make_rows(1, pair_rows=0))
    assert targets.ballast
    assert float(part.loss(batch, torch.randn(1, 16), targets)) == 0.0
    statistics.commit_step(True)
    assert not statistics.take_window().counts

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, OBJECTIVES, TRAINING, VOCABULARY, deal, make_rows, pack, reference_loss

from xlm.model.pretraining import PretrainingModel
from xlm.training.objectives import PretrainingObjective
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext


def objective(seed=3):
    model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES))
    model.initialise(seed)
    return PretrainingObjective(model, TRAINING, LossStatistics(("only",), LANGUAGES, torch.device("cpu")))


def run(module, batches):
    """Forward and backward over micro-batches of one process; returns the loss."""
    context = StepContext((BatchCounts.of(batches),), OBJECTIVES, 0, 0)
    total = 0.0
    for number, batch in enumerate(batches):
        loss = module(batch, context, number == 0 and context.pairs > 0)
        loss.backward()
        total += loss.item()
    return total


def gradients(module):
    return {name: parameter.grad.clone() for name, parameter in module.model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("micro_steps", [1, 2, 4, 9])
def test_any_micro_batching_gives_the_loss_and_gradient_of_the_definition(micro_steps):
    rows = make_rows(0)
    reference = objective()
    expected = reference_loss(reference.model, rows)
    expected.backward()
    module = objective()
    assert run(module, deal(rows, 1, micro_steps, 0)) == pytest.approx(expected.item(), rel=1e-5)
    found, wanted = gradients(module), gradients(reference)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def test_statistics_are_the_means_by_objective_and_language():
    rows = make_rows(1)
    module = objective()
    loss = run(module, deal(rows, 1, 2, 0))
    module.statistics.commit_step(True)
    tokens = module.statistics.seen().tokens_by_language()
    means = module.statistics.take_window()
    assert means.loss == pytest.approx(loss, rel=1e-6)
    assert means.steps == 1
    ids = [(one["language"], len(one["ids"])) for row in rows for one in row]
    for number, language in enumerate(LANGUAGES):
        assert tokens[language] == sum(length for index, length in ids if index == number)
    assert module.statistics.seen().rows_by_objective() == {"tlm": 3, "mlm": 2, "contrastive": 3}
    predicted = sum(means.counts[cell] for cell in means.counts if cell[0] != "contrastive")
    weighted = sum(
        OBJECTIVES[objective].loss_weight * means.languages[objective, language] * means.counts[objective, language] / predicted
        for objective, language in means.counts
        if objective != "contrastive"
    )
    assert weighted + OBJECTIVES["contrastive"].loss_weight * means.objectives["contrastive"] == pytest.approx(loss, rel=1e-6)


def test_contrastive_losses_are_counted_by_the_language_of_the_target():
    rows = make_rows(2, token_rows=0)
    module = objective()
    run(module, [pack(rows)])
    module.statistics.commit_step(True)
    counts = module.statistics.take_window().counts
    targets = [one["language"] for row in rows for one in row[1::2]]
    assert counts == {("contrastive", LANGUAGES[number]): targets.count(number) for number in set(targets)}


@pytest.mark.parametrize("rows", [[], make_rows(2, token_rows=0), make_rows(2, pair_rows=0)], ids=["empty", "only pairs", "no pairs"])
def test_every_micro_batch_gives_every_parameter_a_gradient(rows):
    module = objective()
    loss = run(module, [pack(rows)])
    missing = [name for name, parameter in module.model.named_parameters() if parameter.grad is None]
    assert missing == []
    if not rows:
        assert loss == 0.0
        assert all(not parameter.grad.any() for parameter in module.model.parameters())

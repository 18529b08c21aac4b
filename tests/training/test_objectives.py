import pytest
import torch
from made_up_steps import COMPLETE, EVERYTHING, LANGUAGES, MODEL, OBJECTIVES, TRAINING, VOCABULARY, deal, make_rows, pack, reference_loss

from xlm.model import vocabulary_loss, vocabulary_memory
from xlm.model.pretraining import PretrainingModel
from xlm.training.objectives import PretrainingObjective
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext


def objective(config=COMPLETE, training=TRAINING, seed=3):
    model = PretrainingModel(config, VOCABULARY, len(LANGUAGES))
    model.initialise(seed)
    return PretrainingObjective(model, training, LossStatistics(("only",), LANGUAGES, torch.device("cpu")))


def run(module, batches, objectives=OBJECTIVES):
    """Forward and backward over micro-batches of one process; returns the loss."""
    context = StepContext((BatchCounts.of(batches),), objectives, 0, 0)
    total = 0.0
    for number, batch in enumerate(batches):
        loss = module(batch, context, number == 0 and context.pairs > 0)
        loss.backward()
        total += loss.item()
    return total


def gradients(module):
    return {name: parameter.grad.clone() for name, parameter in module.model.named_parameters() if parameter.grad is not None}


def assert_is_the_definition(config, rows, micro_steps):
    reference = objective(config)
    expected = reference_loss(reference.model, rows)
    expected.backward()
    module = objective(config)
    assert run(module, deal(rows, 1, micro_steps, 0)) == pytest.approx(expected.item(), rel=1e-5)
    found, wanted = gradients(module), gradients(reference)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    assert all(not gradient.any() for name, gradient in found.items() if name not in wanted)


@pytest.mark.parametrize("micro_steps", [1, 2, 4, 9])
@pytest.mark.parametrize("config", [MODEL, COMPLETE], ids=["one head", "all heads"])
def test_any_micro_batching_gives_the_loss_and_gradient_of_the_definition(config, micro_steps):
    assert_is_the_definition(config, make_rows(0), micro_steps)


@pytest.mark.parametrize("micro_steps", [1, 3, 8, 15])
def test_all_objectives_in_one_step_are_the_sum_of_their_definitions(micro_steps):
    assert_is_the_definition(COMPLETE, make_rows(4, token_rows=13, objectives=EVERYTHING), micro_steps)


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_objective_alone_is_its_definition(name):
    assert_is_the_definition(COMPLETE, make_rows(5, token_rows=4, pair_rows=0, objectives=(name,)), 2)


def test_a_language_model_head_and_a_generator_add_to_one_standing_gradient(monkeypatch):
    # A model as narrow as this one would not do it: the memory is not worth the smaller products.
    monkeypatch.setattr(vocabulary_memory, "MIN_WITHOUT_LENDER", 1)
    standing, visit = [], vocabulary_loss.visit_vocabulary

    def watched(hidden, table, bias, asked, needs):
        standing.append(needs.standing)
        return visit(hidden, table, bias, asked, needs)

    monkeypatch.setattr(vocabulary_loss, "visit_vocabulary", watched)
    # Rows of both objectives in each of three micro-batches: a gradient stands from the second on.
    batches = deal(make_rows(8, token_rows=9, pair_rows=0, objectives=("mlm", "rtd")), 1, 3, 0)
    assert all(set(batch.prediction_objective.tolist()) == {0, 6} for batch in batches)
    found = []
    for in_place in (False, True):
        module = objective()
        module.model.adds_to_gradients = in_place
        standing.clear()
        loss = run(module, batches)
        table = module.model.encoder.embeddings.tokens.weight
        assert [gradient is table.grad for gradient in standing] == [False, False] + [in_place] * 4
        found.append((loss, gradients(module)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)


def test_a_model_without_a_language_model_head_trains_replaced_tokens_and_pairs():
    config = COMPLETE.model_copy(update={"language_model_head": False, "sentence_head": False})
    assert_is_the_definition(config, make_rows(5, token_rows=3, objectives=("rtd",)), 2)


def test_statistics_are_the_means_by_objective_and_language():
    rows = make_rows(1, token_rows=12, objectives=EVERYTHING)
    module = objective()
    loss = run(module, deal(rows, 1, 2, 0))
    module.statistics.commit_step(True)
    seen, means = module.statistics.seen(), module.statistics.take_window()
    assert means.loss == pytest.approx(loss, rel=1e-6)
    assert means.steps == 1
    ids = [(one["language"], len(one["ids"])) for row in rows for one in row]
    for number, language in enumerate(LANGUAGES):
        assert seen.tokens_by_language()[language] == sum(length for index, length in ids if index == number)
    assert seen.rows_by_objective() == {"contrastive": 3, **dict.fromkeys(EVERYTHING, 2)}
    total = {}
    for (measure, language), mean in means.languages.items():
        total[measure] = total.get(measure, 0.0) + mean * means.counts[measure, language]
    counts = {measure: sum(means.counts[cell] for cell in means.counts if cell[0] == measure) for measure in means.objectives}
    assert set(means.accuracies) == set(means.objectives) - {"contrastive"}
    predicted, labels = sum(counts[name] for name in EVERYTHING), counts["nsp_sentence"] + counts["sop_sentence"]
    parts = [OBJECTIVES[name].loss_weight * total[name] / predicted for name in EVERYTHING]
    for name in ("nsp", "sop"):
        parts.append(OBJECTIVES[name].loss_weight * OBJECTIVES[name].sentence_weight * total[f"{name}_sentence"] / labels)
    rtd = OBJECTIVES["rtd"]
    parts.append(rtd.loss_weight * rtd.discriminator_weight * means.objectives["rtd_discriminator"])
    parts.append(OBJECTIVES["contrastive"].loss_weight * means.objectives["contrastive"])
    assert sum(parts) == pytest.approx(loss, rel=1e-6)
    of_rtd = [one for row in rows for one in row if one["objective"] == 6]
    assert counts["rtd_discriminator"] == sum(len(one["ids"]) for one in of_rtd)
    assert counts["rtd"] == sum(len(one["labels"]) for one in of_rtd) >= counts["rtd_replaced"] > 0


def test_accuracies_are_the_shares_of_right_answers():
    rows = make_rows(6, token_rows=8, pair_rows=0, objectives=("mlm", "sop"))
    module = objective()
    model = module.model
    pieces, orders = [], []
    with torch.no_grad():
        for one in (one for row in rows for one in row):
            batch = pack([[one]])
            hidden = model.encode(batch, model.token_tables())
            right = model.logits(hidden[batch.predict_positions]).argmax(1) == batch.labels
            pieces += right.tolist() if one["label"] < 0 else []
            orders += [] if one["label"] < 0 else [int(model.sentence_head(hidden[:1]).argmax()) == one["label"]]
    run(module, [pack(rows)])
    module.statistics.commit_step(True)
    accuracies = module.statistics.take_window().accuracies
    assert accuracies["mlm"] == pytest.approx(sum(pieces) / len(pieces))
    assert accuracies["sop_sentence"] == pytest.approx(sum(orders) / len(orders))
    assert 0 < accuracies["sop_sentence"] < 1


def test_contrastive_losses_are_counted_by_the_language_of_the_target():
    rows = make_rows(2, token_rows=0)
    module = objective(MODEL)
    run(module, [pack(rows)])
    module.statistics.commit_step(True)
    counts = module.statistics.take_window().counts
    targets = [one["language"] for row in rows for one in row[1::2]]
    assert counts == {("contrastive", LANGUAGES[number]): targets.count(number) for number in set(targets)}


ROWS = {
    "empty": [],
    "only pairs": make_rows(2, token_rows=0),
    "no pairs": make_rows(2, pair_rows=0),
    "only rtd": make_rows(2, pair_rows=0, objectives=("rtd",)),
    "no rtd": make_rows(2, objectives=("sop", "clm")),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("config", [MODEL, COMPLETE], ids=["one head", "all heads"])
def test_every_micro_batch_gives_every_parameter_a_gradient(config, rows):
    module = objective(config)
    loss = run(module, [pack(rows)])
    missing = [name for name, parameter in module.model.named_parameters() if parameter.grad is None]
    assert missing == []
    if not rows:
        assert loss == 0.0
        assert all(not parameter.grad.any() for parameter in module.model.parameters())


def test_the_draw_of_pieces_depends_on_the_uniforms_of_the_batch_alone():
    rows = make_rows(7, token_rows=6, pair_rows=0, objectives=("rtd",))
    losses = []
    for changed in (False, False, True):
        for one in (one for row in rows for one in row):
            one["uniforms"] = one["uniforms"] / 2 if changed else one["uniforms"]
        losses.append(run(objective(), [pack(rows)]))
    assert losses[0] == losses[1] != losses[2]


def test_smoothing_and_z_loss_change_what_is_trained_and_not_what_is_told():
    rows = make_rows(3, objectives=("mlm", "rtd"), pair_rows=0)
    told, losses = [], []
    for options in ({}, {"label_smoothing": 0.1}, {"z_loss": 1e-2}):
        module = objective(training=TRAINING.model_copy(update=options))
        losses.append(run(module, [pack(rows)]))
        module.statistics.commit_step(True)
        told.append(module.statistics.take_window().objectives)
    assert all(one == pytest.approx(told[0]) for one in told[1:])
    assert len(set(losses)) == 3

"""The contrastive objective with each of its options: against a plain computation, pair by pair and step by step."""

import copy
import json

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, OBJECTIVES, TRAINING, VOCABULARY, deal, make_rows, pack
from ranks import run_ranks

from xlm.config.training import ContrastiveSection
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.objectives import PretrainingObjective
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext

WEIGHT = OBJECTIVES["contrastive"].loss_weight
OPTIONS = {
    "plain": {},
    "first": {"pooling": "first"},
    "layer": {"layer": 1},
    "embeddings, first": {"layer": 0, "pooling": "first"},
    "queue": {"queue_pairs": 7},
    "momentum": {"momentum": 0.5},
    "everything": {"queue_pairs": 7, "momentum": 0.5, "layer": 1, "pooling": "first"},
}
STEPS = 5


def objective(**options):
    model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES))
    model.initialise(3)
    section = ContrastiveSection(temperature=0.2, **options)
    training = TRAINING.model_copy(update={"contrastive": section})
    return PretrainingObjective(model, training, LossStatistics(("only",), LANGUAGES, torch.device("cpu")))


def train(module, steps, start=0, micro_steps=1):
    """Plain gradient steps on pairs alone; returns the losses."""
    losses = []
    for step in range(start, steps):
        batches = deal(make_rows(step, token_rows=0), 1, micro_steps, 0)
        context = StepContext((BatchCounts.of(batches),), OBJECTIVES, 0, 0)
        total = 0.0
        for number, batch in enumerate(batches):
            loss = module(batch, context, number == 0)
            loss.backward()
            total += loss.item()
        losses.append(total)
        descend(module.model)
    return losses


def descend(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.3 * parameter.grad
                parameter.grad = None


def plain_training(steps, *, pooling="mean", layer=None, queue_pairs=0, momentum=None):
    """The same, written from the definitions: one sequence at a time, a list of earlier pairs, a second model."""
    model = objective().model
    slow, earlier, losses = copy.deepcopy(model), [], []
    for step in range(steps):
        if momentum is not None:
            with torch.no_grad():
                for mean, now in zip(slow.parameters(), model.parameters(), strict=True):
                    mean.copy_(momentum * mean + (1 - momentum) * now)
        sides = {}
        for one in (one for row in make_rows(step, token_rows=0) for one in row):
            batch = pack([[one]])
            vectors = []
            for encoder in (model, model if momentum is None else slow):
                states = encoder.encode_layers(batch, encoder.token_tables())[-1 if layer is None else layer]
                vectors.append(states[0] if pooling == "first" else (states[1:-1] if len(states) > 2 else states).mean(0))
            key = vectors[1] if momentum is None else vectors[1].detach()
            sides.setdefault(one["index"], []).append((vectors[0], key, one["key"], one["ids"].tolist()))
        pairs = list(sides.values())
        terms = []
        for number, pair in enumerate(pairs):
            others = [other for place, other in enumerate(pairs) if place != number] + earlier
            others = [other for other in others if other[0][2] != pair[0][2] and all(other[s][3] != pair[s][3] for s in range(2))]
            for query, side in ((0, 1), (1, 0)):
                scores = [torch.cosine_similarity(pair[query][0], other[side][1], dim=0) / 0.2 for other in [pair, *others]]
                terms.append(torch.logsumexp(torch.stack(scores), 0) - scores[0])
        loss = WEIGHT * torch.stack(terms).mean()
        loss.backward()
        losses.append(loss.item())
        if queue_pairs:
            detached = [[(query.detach(), key.detach(), name, ids) for query, key, name, ids in pair] for pair in pairs]
            earlier = (earlier + detached)[-queue_pairs:]
        descend(model)
    return losses, model


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_those_of_the_definition(name):
    expected, reference = plain_training(STEPS, **OPTIONS[name])
    module = objective(**OPTIONS[name])
    assert train(module, STEPS) == pytest.approx(expected, rel=2e-4)
    for (parameter, found), wanted in zip(module.model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-5, msg=parameter)


@pytest.mark.parametrize("name", ["queue", "momentum", "everything"])
def test_options_matter(name):
    assert train(objective(**OPTIONS[name]), STEPS)[-1] != pytest.approx(train(objective(), STEPS)[-1], rel=1e-3)


@pytest.mark.parametrize("name", ["queue", "momentum", "everything"])
def test_what_is_saved_is_all_that_goes_from_step_to_step(name):
    whole = objective(**OPTIONS[name])
    losses = train(whole, STEPS)
    first, second = objective(**OPTIONS[name]), objective(**OPTIONS[name])
    train(first, 2)
    second.model.load_state_dict(first.model.state_dict())
    second.pairs.load({tensor: value.clone() for tensor, value in first.pairs.state().items()})
    assert train(second, STEPS, start=2) == losses[2:]


def test_nothing_is_saved_where_nothing_goes_on():
    assert objective().pairs.state() == {}


def test_a_layer_that_the_model_lacks():
    with pytest.raises(UserError, match=r"contrastive\.layer is 3, but the model has layers 1 to 2"):
        objective(layer=3)


def test_a_step_that_diverged_leaves_the_queue_alone():
    module = objective(queue_pairs=7)
    train(module, 1)
    before = {name: tensor.clone() for name, tensor in module.pairs.state().items()}
    with torch.no_grad():
        module.model.encoder.embeddings.tokens.weight.fill_(float("nan"))
    train(module, 2, start=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.pairs.state().items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The engine's steps with everything on, by (ranks, ZeRO stage), each broken off once and gone on with."""
    found = {}
    for ranks, stage, micro_steps in ((1, 0, 2), (2, 2, 1)):
        out = tmp_path_factory.mktemp("trained") / "out.json"
        scenario = {"stage": stage, "micro_steps": micro_steps, "steps": STEPS, "resume_after": 3}
        run_ranks("pairs_worker.py", [json.dumps([scenario]), str(out), json.dumps(OPTIONS["everything"])], ranks)
        (found[ranks, stage],) = json.loads(out.read_text())
    return found


def test_any_ranks_and_micro_batches_make_the_same_steps(trained):
    expected, found = trained[1, 0], trained[2, 2]
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    for name, weights in expected["weights"].items():
        assert found["weights"][name] == pytest.approx(weights, rel=1e-2, abs=2e-3)


def test_a_run_that_was_broken_off_goes_on_bit_by_bit(trained):
    for told in trained.values():
        assert told["resumed"]["losses"] == told["losses"][3:]
        assert told["resumed"]["weights"] == told["weights"]

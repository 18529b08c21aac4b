from dataclasses import replace

import pytest
import torch
from made_up_steps import COMPLETE, LANGUAGES, OBJECTIVES, TRAINING, VOCABULARY, make_rows, pack
from scipy import stats
from transformers import ElectraConfig, ElectraForPreTraining

from tests.interop.their_models import SIZES, draw, our_states, twins
from xlm.model.pretraining import PretrainingModel
from xlm.training.ballast import Targets
from xlm.training.replaced_tokens import ReplacedTokens
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext

ROWS = make_rows(1, token_rows=6, pair_rows=0, objectives=("rtd", "mlm"))
BATCH = pack(ROWS)
OF_RTD = torch.nonzero(torch.repeat_interleave(BATCH.sequence_objective == 6, BATCH.cu_seqlens.diff())).squeeze(1)
FILLED = BATCH.predict_positions[BATCH.prediction_objective == 6]


def made(batch=BATCH, **options):
    model = PretrainingModel(COMPLETE, VOCABULARY, len(LANGUAGES))
    model.initialise(3)
    both = ReplacedTokens(
        model, model.generator, model.discriminator_head, TRAINING, LossStatistics(("only",), LANGUAGES, torch.device("cpu"))
    )
    objectives = {**OBJECTIVES, "rtd": OBJECTIVES["rtd"].model_copy(update=options)}
    found = both.generate(batch, model.token_tables(), StepContext((BatchCounts.of([batch]),), objectives, 0, 0))
    return model, both, found


def test_only_predicted_positions_of_rtd_change_and_every_token_of_its_sequences_is_judged():
    _, _, found = made()
    untouched = torch.ones(BATCH.tokens, dtype=torch.bool)
    untouched[FILLED] = False
    assert torch.equal(found.input_ids[untouched], BATCH.input_ids[untouched])
    assert torch.equal(found.targets.tokens, OF_RTD)
    labels = torch.zeros(BATCH.tokens, dtype=torch.int64)
    labels[FILLED] = (found.input_ids[FILLED] != BATCH.labels[BATCH.prediction_objective == 6]).long()
    assert torch.equal(found.targets.labels, labels[OF_RTD])
    assert int(labels.sum()) > 0
    assert found.targets.weights.sum() == pytest.approx(0.4 * 3.0)


def test_a_drawn_piece_that_is_the_texts_own_counts_as_original():
    _, _, first = made()
    own = torch.where(torch.isin(torch.arange(BATCH.tokens), FILLED), first.input_ids, 0)
    labels = BATCH.labels.clone()
    labels[BATCH.prediction_objective == 6] = own[FILLED]
    _, _, again = made(replace(BATCH, labels=labels))
    assert torch.equal(again.input_ids, first.input_ids)
    assert not again.targets.labels.any()


def test_the_discriminator_teaches_the_generator_nothing():
    gradients = []
    for weight in (0.0, 3.0):
        model, both, found = made(discriminator_weight=weight)
        states = model.encode(BATCH, model.token_tables(), input_ids=found.input_ids)[found.targets.tokens]
        (found.loss + both.judge(states, found.targets, BATCH.language_ids[found.targets.tokens])).backward()
        gradients.append({name: parameter.grad for name, parameter in model.generator.named_parameters()})
        assert bool(model.discriminator_head.dense.weight.grad.any()) == (weight > 0)
    assert all(torch.equal(gradient, gradients[1][name]) for name, gradient in gradients[0].items())


def test_the_discriminators_loss_is_that_of_transformers_for_the_same_replaced_tokens():
    pair = twins(ElectraForPreTraining, ElectraConfig(**SIZES, embedding_size=10, max_position_embeddings=17))
    batch = draw(pair)
    replaced = (torch.arange(batch.input_ids.numel()).view_as(batch.input_ids) % 3 == 0).long()
    tokens, count = torch.arange(batch.packed.tokens), batch.packed.tokens
    targets = Targets(tokens, replaced[batch.real], torch.full((count,), 1 / count))
    statistics = LossStatistics(("only",), LANGUAGES, torch.device("cpu"))
    both = ReplacedTokens(pair.ours, None, pair.ours.discriminator_head, TRAINING, statistics)
    inputs = {"attention_mask": batch.attention_mask, "token_type_ids": batch.token_type_ids}
    with torch.no_grad():
        ours = both.judge(our_states(pair, batch), targets, batch.packed.language_ids)
        theirs = pair.theirs(batch.input_ids, **inputs, labels=replaced).loss
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    # What is told is that mean as well.
    statistics.commit_step(True)
    assert statistics.take_window().objectives["rtd_discriminator"] == pytest.approx(theirs.item(), rel=1e-5)


def test_pieces_are_drawn_from_the_generators_softmax():
    model, _, _ = made()
    one = next(one for row in ROWS for one in row if one["objective"] == 6)
    count = 4000
    copies = pack([[{**one, "positions": one["positions"][:1], "labels": one["labels"][:1], "uniforms": one["uniforms"][:1]}] * count])
    draws = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, _, found = made(replace(copies, uniforms=draws))
    drawn = torch.bincount(found.input_ids[copies.predict_positions], minlength=VOCABULARY)
    with torch.no_grad():
        single = pack([[one]])
        embedded = model.encoder.embeddings(single.input_ids, single.position_ids, single.token_type_ids, single.language_ids)
        read = model.generator(embedded, single.position_ids, single.cu_seqlens, single.predict_positions[:1])
        shares = (read @ model.encoder.embeddings.tokens.weight.T + model.generator.lm_head.bias).double().softmax(1)[0]
    assert stats.chisquare(drawn.numpy(), (shares * count).numpy()).pvalue > 1e-6


def test_rows_without_the_numbers_to_draw_by_are_a_bug():
    with pytest.raises(RuntimeError, match="no uniforms"):
        made(replace(BATCH, uniforms=None))

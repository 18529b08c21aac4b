"""From the same weights, both sides' steps have the same loss and gradients."""

from dataclasses import replace

import pytest
import torch
from training import models, text


def sums_of_step(case):
    ours, peer = models.our_model(case), models.their_model(case)
    padded, packed = text.padded_step(case, 0), text.packed_step(case, 0)
    predictions = sum(batch.predictions for batch in padded)
    losses = []
    for loss_of, model, batches in ((models.our_loss, ours, packed), (models.their_loss, peer, padded)):
        parts = [loss_of(case, model, batch, predictions) for batch in batches]
        for part in parts:
            part.backward()
        losses.append(sum(float(part.detach()) for part in parts))
    return ours, peer, losses


def test_loss_and_gradients_agree(case):
    ours, peer, (own, theirs) = sums_of_step(case)
    assert own == pytest.approx(theirs, abs=2e-6)
    encoder, roberta = ours.encoder, peer.roberta
    layer, block = roberta.encoder.layer[0], encoder.block_of(0)
    separate = (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value)
    for mine, other in (
        (block.attention.qkv.weight.grad, torch.cat([part.weight.grad for part in separate])),
        (block.feed_forward.inner.weight.grad, layer.intermediate.dense.weight.grad),
        (encoder.embeddings.tokens.weight.grad, roberta.embeddings.word_embeddings.weight.grad),
        (encoder.embeddings.positions.weight.grad, roberta.embeddings.position_embeddings.weight.grad[models.FIRST_POSITION :]),
        (ours.lm_head.bias.grad, peer.lm_head.bias.grad),
    ):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


def test_losses_in_bf16_are_close(case):
    _, _, (own, theirs) = sums_of_step(replace(case, precision="bf16"))
    assert own == pytest.approx(theirs, abs=0.02)


def test_the_loss_is_the_mean_over_the_predictions_of_the_step(case):
    ours, _, (own, _) = sums_of_step(case)
    packed = text.packed_step(case, 0)
    sums = [float(models.our_loss(case, ours, batch, 1).detach()) for batch in packed]
    assert own == pytest.approx(sum(sums) / sum(len(batch.labels) for batch in packed), rel=1e-5)


def test_a_parameter_without_a_counterpart_is_noticed(case):
    peer = models.their_model(case)
    peer.roberta.register_parameter("surplus", torch.nn.Parameter(torch.zeros(2)))
    with pytest.raises(ValueError, match=r"ours has not: roberta\.surplus"):
        models.copy_weights(models.our_model(case), peer)

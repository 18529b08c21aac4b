"""Layers that keep their inputs alone against layers that keep everything: the same numbers to the last bit.

How much memory that spares is measured in tests/training/test_memory_estimate.py.
"""

import pytest
import torch

from tests.model.packed import LANGUAGES, VOCABULARY, packed_batch, perturb, shape
from xlm.config.model import GeneratorSection
from xlm.model.encoder import checkpoint_layers
from xlm.model.pretraining import PretrainingModel, encoder_inputs

SHAPES = {
    "post": {"dropout": 0.3, "attention_dropout": 0.2},
    "pre": {"norm_position": "pre", "dropout": 0.3, "stochastic_depth": 0.4, "activation": "geglu"},
    "shared": {"layer_groups": 1, "positions": "rotary", "dropout": 0.1},
}


def model_of(changes, *, recomputes):
    model = perturb(PretrainingModel(shape(**changes), VOCABULARY, LANGUAGES, seed=1))
    if recomputes:
        checkpoint_layers(model)
    return model


def two_backwards(model):
    """Loss and gradients of a micro-batch, taken backward twice, with that of another one before it."""
    model.train()
    losses = []
    for seed in (3, 4):
        model.encoder.dropout_key.set("micro-batch", seed)
        batch = packed_batch(seed=seed)
        loss = model.language_model_loss(batch, torch.full((len(batch.labels),), 0.2)).total
        losses.append(loss.item())
        loss.backward(retain_graph=seed == 4)
    after = model.encoder.dropout_key.next_seed()
    loss.backward()
    return losses, after, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_losses_gradients_and_the_masks_to_come_are_the_same_bits(changes):
    losses, after, gradients = two_backwards(model_of(changes, recomputes=True))
    true_losses, true_after, true_gradients = two_backwards(model_of(changes, recomputes=False))
    assert losses == true_losses
    assert after == true_after
    for name, gradient in true_gradients.items():
        assert torch.equal(gradients[name], gradient), name


def test_a_generators_layers_are_computed_again_too_and_nothing_is_without_gradients():
    changes = {"generator": GeneratorSection(width=8, layers=2, heads=2, feed_forward=16), "discriminator_head": True}
    model = model_of(changes, recomputes=True)
    runs = dict.fromkeys(("encoder", "generator"), 0)
    for name, block in (("encoder", model.encoder.blocks[0]), ("generator", model.generator.layers.blocks[0])):
        block.register_forward_pre_hook(lambda *_, name=name: runs.update({name: runs[name] + 1}))
    batch = packed_batch()
    embedded = model.encoder(**encoder_inputs(model.config, batch), return_layers=True)[0]
    model.generator(embedded, batch.position_ids, batch.cu_seqlens, batch.predict_positions).sum().backward()
    assert runs == {"encoder": 1, "generator": 2}
    with torch.no_grad():
        model.encode(batch, model.token_tables())
    model.eval()
    model.encode(batch, model.token_tables()).sum().backward()
    assert runs == {"encoder": 3, "generator": 2}

"""ELECTRA's generator: its own layers, everybody's tables."""

import torch
import torch.nn.functional as F  # noqa: N812

from tests.model.packed import LENGTHS, VOCABULARY, packed_batch, perturb, shape
from tests.model.plain_encoder import linear, norm, plain_states
from xlm.config.model import GeneratorSection
from xlm.model.generator import generator_config
from xlm.model.pretraining import PretrainingModel

SECTION = {"width": 8, "layers": 2, "heads": 1, "feed_forward": 12}
ELECTRA = {"norm_position": "post", "token_types": 2, "discriminator_head": True, "language_model_head": False, "generator": SECTION}


def build(**changes):
    return perturb(PretrainingModel(shape(**{**ELECTRA, **changes}), VOCABULARY, 0))


def embedded(model, batch, lookup):
    return model.encoder.embeddings(batch.input_ids, batch.position_ids, batch.token_type_ids, None, lookup)


def test_it_reads_the_models_embeddings_through_layers_of_its_own():
    for changes in ({}, {"embedding_width": 4}, {"positions": "rotary", "norm_position": "pre", "embedding_norm": True}):
        model, batch = build(**changes), packed_batch(LENGTHS, 6)
        read = embedded(model, batch, None)
        states = plain_states(model.generator.layers, read, batch.position_ids, batch.cu_seqlens)[-1][batch.predict_positions]
        head = model.generator.lm_head
        expected = norm(head.norm, F.gelu(linear(head.dense, states)))
        found = model.generator(read, batch.position_ids, batch.cu_seqlens, batch.predict_positions)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        assert found.shape == (6, model.config.embedding_size)


def test_it_owns_no_table():
    for changes in ({}, {"language_model_head": True}):
        model = build(**changes)
        assert not [name for name, _ in model.generator.named_parameters() if "embeddings" in name or name == "lm_head.weight"]
        assert model.generator.lm_head.bias.shape == (VOCABULARY,)


def test_the_table_learns_from_looking_up_and_from_projecting():
    model, batch = build(), packed_batch(LENGTHS, 6)
    table = model.encoder.embeddings.tokens.weight

    def gradient(look_up, project):
        tables = model.token_tables()
        read = embedded(model, batch, tables.lookup if look_up else table.detach())
        states = model.generator(read, batch.position_ids, batch.cu_seqlens, batch.predict_positions)
        logits = F.linear(states, tables.projection if project else table.detach(), model.generator.lm_head.bias)
        return torch.autograd.grad(F.cross_entropy(logits, batch.labels), table)[0]

    both, looked_up, projected = gradient(True, True), gradient(True, False), gradient(False, True)
    assert looked_up.any()
    assert projected.any()
    torch.testing.assert_close(both, looked_up + projected, atol=1e-5, rtol=1e-4)


def test_its_shape_is_the_models_but_for_its_sizes():
    config = shape(**ELECTRA, dropout=0.1, layer_groups=1, activation="gelu_tanh", sentence_head=True)
    own = generator_config(config, GeneratorSection(**SECTION))
    assert (own.width, own.layers, own.heads, own.feed_forward) == (8, 2, 1, 12)
    assert own.embedding_size == 16
    assert (own.dropout, own.activation, own.norm_position) == (0.1, "gelu_tanh", "post")
    assert own.layer_groups is None
    assert own.generator is None
    assert not own.discriminator_head
    assert not own.sentence_head
    assert own.language_model_head
    assert own.tied_output


def test_as_wide_as_its_embeddings_it_needs_no_projection():
    assert build(generator={**SECTION, "width": 16}).generator.layers.embedding_projection is None
    assert build().generator.layers.embedding_projection.weight.shape == (8, 16)


def test_names_of_parameters_are_those_of_saved_models():
    names = {name for name in build().state_dict() if name.startswith("generator.") and ".blocks." not in name}
    assert names == {
        "generator.layers.embedding_projection.weight",
        "generator.layers.embedding_projection.bias",
        "generator.lm_head.dense.weight",
        "generator.lm_head.dense.bias",
        "generator.lm_head.norm.weight",
        "generator.lm_head.norm.bias",
        "generator.lm_head.bias",
    }

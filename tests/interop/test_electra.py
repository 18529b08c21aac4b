"""ELECTRA: the generator, the discriminator, and both from one model of ours."""

import pytest
import torch
from their_models import (
    BASE_SCALE,
    SIZES,
    assert_close,
    call,
    check_gradients,
    check_logits,
    check_round_trip,
    compare_gradients,
    draw,
    our_states,
    sequences,
    twins,
)
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from xlm.config.model import GeneratorSection, ModelConfig
from xlm.errors import UserError
from xlm.interop.config_map import write_config
from xlm.interop.families import family_named
from xlm.interop.family import Facts
from xlm.interop.normal_form import joined, split_generator
from xlm.interop.weight_map import export_weights
from xlm.model.pretraining import PretrainingModel

WIDTHS = [{"embedding_size": 10}, {"embedding_size": 24}]
BOTH = ModelConfig(
    width=24,
    layers=3,
    heads=3,
    feed_forward=40,
    max_positions=17,
    norm_position="post",
    token_types=2,
    embedding_width=10,
    language_model_head=False,
    discriminator_head=True,
    generator=GeneratorSection(width=12, layers=2, heads=2, feed_forward=20),
)


def electra(**changes):
    return ElectraConfig(**{**SIZES, "max_position_embeddings": 17, **changes})


@pytest.mark.parametrize("changes", [*WIDTHS, {"embedding_size": 10, "tie_word_embeddings": False}])
def test_the_generator_scores_words_alike(changes):
    pair = twins(ElectraForMaskedLM, electra(**changes))
    check_logits(pair)
    check_round_trip(pair)


@pytest.mark.parametrize("changes", WIDTHS)
def test_the_discriminator_scores_tokens_alike(changes):
    pair = twins(ElectraForPreTraining, electra(**changes))
    batch = draw(pair)
    with torch.no_grad():
        scores = pair.ours.discriminator_head(our_states(pair, batch))
        assert_close("ELECTRA discriminator", scores, call(pair, batch).logits[batch.real])
    check_round_trip(pair)


@pytest.mark.parametrize("changes", WIDTHS)
def test_gradients_are_the_same(changes):
    check_gradients(twins(ElectraForMaskedLM, electra(**changes)))


@pytest.mark.parametrize("changes", WIDTHS)
def test_the_discriminators_loss_and_gradients_are_those_of_transformers(changes):
    pair = twins(ElectraForPreTraining, electra(**changes))
    batch = draw(pair)
    replaced = torch.arange(batch.input_ids.numel()).view_as(batch.input_ids) % 3 == 0
    # All padding would count as replaced, if the attention mask did not leave it out.
    labels = (replaced | ~batch.real).long()
    inputs = {"attention_mask": batch.attention_mask, "token_type_ids": batch.token_type_ids}
    theirs = pair.theirs(batch.input_ids, **inputs, labels=labels).loss
    scores = pair.ours.discriminator_head(our_states(pair, batch))
    ours = torch.nn.functional.binary_cross_entropy_with_logits(scores, replaced[batch.real].float())
    assert_close("ELECTRA discriminator loss", ours, theirs)
    theirs.backward()
    ours.backward()
    compare_gradients(pair)


def both():
    model = PretrainingModel(BOTH, 61, 1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) * 0.1)
    return model


def test_a_model_with_a_generator_becomes_two_and_one_again():
    ours, batch = both(), sequences(61, 0, types=2)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "token_type_ids": batch.token_type_ids}
    halves, family = split_generator(BOTH, ours.state_dict()), family_named("electra")
    said = {}
    for part, model in (("discriminator", ElectraForPreTraining), ("generator", ElectraForMaskedLM)):
        config, state = halves[part]
        json = write_config(family, config, Facts(61, pad_id=0))
        assert json["architectures"] == [model.__name__]
        theirs = model(ElectraConfig(**json, attn_implementation="eager")).eval()
        theirs.load_state_dict(export_weights(family, config, json, state), strict=True)
        with torch.no_grad():
            said[part] = theirs(**inputs).logits[batch.real]
    packed = batch.packed
    with torch.no_grad():
        states = ours.encode(packed, ours.token_tables())
        assert_close("two folders: discriminator", ours.discriminator_head(states), said["discriminator"])
        embedded = ours.encoder.embeddings(packed.input_ids, packed.position_ids, packed.token_type_ids, None)
        hidden = ours.generator(embedded, packed.position_ids, packed.cu_seqlens, torch.arange(packed.tokens))
        table, bias = ours.encoder.embeddings.tokens.weight, ours.generator.lm_head.bias
        assert_close("two folders: generator", torch.nn.functional.linear(hidden, table, bias), said["generator"])
    config, state = joined(halves["discriminator"], halves["generator"])
    assert config == BOTH
    assert set(state) == set(ours.state_dict())
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.state_dict().items())


def test_halves_with_other_embeddings_are_not_joined():
    halves = split_generator(BOTH, both().state_dict())
    config, state = halves["generator"]
    state = {**state, "encoder.embeddings.norm.weight": state["encoder.embeddings.norm.weight"] + 1}
    with pytest.raises(UserError, match=r"'encoder\.embeddings\.norm\.weight' of the generator is not the discriminator's"):
        joined(halves["discriminator"], (config, state))


@pytest.mark.slow
def test_small_shape():
    pair = twins(ElectraForMaskedLM, ElectraConfig(vocab_size=3001), scale=BASE_SCALE)
    check_logits(pair)
    check_round_trip(pair)

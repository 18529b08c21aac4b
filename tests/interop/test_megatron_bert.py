"""Megatron-BERT: pre-norm encoders with learned positions, ours included."""

import pytest
import torch
from their_models import (
    BASE_SCALE,
    SIZES,
    assert_close,
    check_gradients,
    check_logits,
    check_round_trip,
    draw,
    first_states,
    sequences,
    twins,
)
from transformers import MegatronBertConfig, MegatronBertForMaskedLM, MegatronBertForPreTraining

from xlm.config.model import ModelConfig
from xlm.interop.config_map import choose_family
from xlm.interop.family import Facts
from xlm.interop.normal_form import without_embedding_scale
from xlm.interop.weight_map import export_weights
from xlm.model.pretraining import PretrainingModel


def megatron(**changes):
    return MegatronBertConfig(**{**SIZES, "max_position_embeddings": 17, **changes})


def test_words_and_next_sentences_are_scored_alike():
    pair = twins(MegatronBertForPreTraining, megatron())
    batch, said, states = check_logits(pair, field="prediction_logits")
    scores = pair.ours.sentence_head(first_states(states, batch))
    assert_close("Megatron-BERT next sentence", scores, said.seq_relationship_logits)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model", [MegatronBertForMaskedLM, MegatronBertForPreTraining])
def test_export_gives_the_same_tensors_back(model, tied):
    check_round_trip(twins(model, megatron(tie_word_embeddings=tied)))


def test_gradients_are_the_same():
    check_gradients(twins(MegatronBertForMaskedLM, megatron()))


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_scale": 16.0},
        {"embedding_scale": 5.0, "final_norm": "head"},
        {"final_norm": "head", "output_bias": False},
        {"biases": False},
        {"embedding_scale": 4.0, "tied_output": False},
    ],
)
def test_our_own_models_are_scored_alike_by_it(changes):
    config = ModelConfig(width=24, layers=3, heads=3, feed_forward=40, max_positions=17, **changes)
    ours = PretrainingModel(config, 61, 1).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) * 0.1)
    plain, state = without_embedding_scale(config, ours.state_dict())
    family, json = choose_family(plain, Facts(61, pad_id=0))
    assert family.name == "megatron-bert"
    theirs = MegatronBertForMaskedLM(MegatronBertConfig(**json, attn_implementation="eager")).eval()
    theirs.load_state_dict(export_weights(family, plain, json, state), strict=True)
    batch = sequences(61, 0)
    with torch.no_grad():
        logits = theirs(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits[batch.real]
        assert_close(f"ours with {changes}", ours.logits(ours.encode(batch.packed, ours.token_tables())), logits)


@pytest.mark.slow
def test_base_shape():
    base = MegatronBertConfig(vocab_size=3001, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
    pair = twins(MegatronBertForMaskedLM, base, scale=BASE_SCALE)
    check_logits(pair, draw(pair))
    check_round_trip(pair)

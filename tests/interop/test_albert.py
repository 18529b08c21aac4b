"""ALBERT: factorised embeddings, layers shared in groups, sentence order."""

import pytest
from their_models import (
    BASE_SCALE,
    SIZES,
    assert_close,
    check_gradients,
    check_logits,
    check_round_trip,
    check_sentence_gradients,
    first_states,
    twins,
)
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertForPreTraining

GROUPS = [{}, {"num_hidden_layers": 4, "num_hidden_groups": 2}, {"num_hidden_groups": 3}, {"hidden_act": "gelu"}]


def albert(**changes):
    return AlbertConfig(**{**SIZES, "embedding_size": 10, "max_position_embeddings": 17, **changes})


@pytest.mark.parametrize("changes", GROUPS)
def test_words_and_sentence_order_are_scored_alike(changes):
    pair = twins(AlbertForPreTraining, albert(**changes))
    batch, said, states = check_logits(pair, field="prediction_logits")
    assert_close("ALBERT sentence order", pair.ours.sentence_head(first_states(states, batch)), said.sop_logits)


@pytest.mark.parametrize("changes", [*GROUPS, {"tie_word_embeddings": False}])
@pytest.mark.parametrize("model", [AlbertForMaskedLM, AlbertForPreTraining])
def test_export_gives_the_same_tensors_back(model, changes):
    check_round_trip(twins(model, albert(**changes)))


@pytest.mark.parametrize("changes", GROUPS)
def test_gradients_are_the_same(changes):
    check_gradients(twins(AlbertForMaskedLM, albert(**changes)))


@pytest.mark.parametrize("changes", GROUPS)
def test_gradients_of_sentence_order_are_the_same(changes):
    check_sentence_gradients(twins(AlbertForPreTraining, albert(**changes, classifier_dropout_prob=0.0)), "sop_logits")


@pytest.mark.slow
def test_base_shape():
    base = AlbertConfig(vocab_size=3001, hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    pair = twins(AlbertForPreTraining, base, scale=BASE_SCALE)
    check_logits(pair, field="prediction_logits")
    check_round_trip(pair)

"""BERT: the same scores, the same gradients, and the same file again."""

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
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining


def bert(**changes):
    return BertConfig(**{**SIZES, "max_position_embeddings": 17, **changes})


def test_words_and_next_sentences_are_scored_alike():
    pair = twins(BertForPreTraining, bert())
    batch, said, states = check_logits(pair, field="prediction_logits")
    scores = pair.ours.sentence_head(first_states(states, batch))
    assert_close("BERT next sentence", scores, said.seq_relationship_logits)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"hidden_act": "gelu_new"}, {"type_vocab_size": 1}])
def test_masked_words_are_scored_alike_with_every_choice(changes):
    check_logits(twins(BertForMaskedLM, bert(**changes)))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model", [BertForMaskedLM, BertForPreTraining])
def test_export_gives_the_same_tensors_back(model, tied):
    check_round_trip(twins(model, bert(tie_word_embeddings=tied)))


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_are_the_same(tied):
    check_gradients(twins(BertForPreTraining, bert(tie_word_embeddings=tied)), field="prediction_logits")


def test_gradients_of_next_sentences_are_the_same():
    check_sentence_gradients(twins(BertForPreTraining, bert()), "seq_relationship_logits")


@pytest.mark.slow
def test_base_shape():
    pair = twins(BertForPreTraining, BertConfig(vocab_size=3001), scale=BASE_SCALE)
    check_logits(pair, field="prediction_logits")
    check_round_trip(pair)

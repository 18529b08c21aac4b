"""DistilBERT: no token types, learned or sinusoidal positions."""

import pytest
from their_models import BASE_SCALE, check_gradients, check_logits, check_round_trip, twins
from transformers import DistilBertConfig, DistilBertForMaskedLM

POSITIONS = "distilbert.embeddings.position_embeddings.weight"


def distilbert(**changes):
    sizes = {"vocab_size": 61, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 17}
    return DistilBertConfig(**{**sizes, **changes})


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"activation": "gelu_new"}])
def test_masked_words_are_scored_alike(changes):
    pair = twins(DistilBertForMaskedLM, distilbert(**changes))
    check_logits(pair)
    check_round_trip(pair)


def test_sinusoidal_positions_are_recomputed_and_given_back():
    pair = twins(DistilBertForMaskedLM, distilbert(sinusoidal_pos_embds=True), keep=(POSITIONS,))
    check_logits(pair)
    check_round_trip(pair)


def test_gradients_are_the_same():
    check_gradients(twins(DistilBertForMaskedLM, distilbert()))


@pytest.mark.slow
def test_base_shape():
    pair = twins(DistilBertForMaskedLM, DistilBertConfig(vocab_size=3001), scale=BASE_SCALE)
    check_logits(pair)
    check_round_trip(pair)

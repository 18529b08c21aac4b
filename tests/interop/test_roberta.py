"""RoBERTa and XLM-R: position 0 behind the padding row, the head's own names."""

import pytest
from their_models import BASE_SCALE, SIZES, check_gradients, check_logits, check_round_trip, draw, twins
from transformers import RobertaConfig, RobertaForMaskedLM, XLMRobertaConfig, XLMRobertaForMaskedLM

FAMILIES = [(RobertaForMaskedLM, RobertaConfig), (XLMRobertaForMaskedLM, XLMRobertaConfig)]


def config(kind, **changes):
    return kind(**{**SIZES, "max_position_embeddings": 19, "type_vocab_size": 1, **changes})


@pytest.mark.parametrize(("model", "kind"), FAMILIES)
@pytest.mark.parametrize("changes", [{}, {"pad_token_id": 0, "bos_token_id": 2}, {"pad_token_id": 4}, {"type_vocab_size": 2}])
def test_masked_words_are_scored_alike(model, kind, changes):
    pair = twins(model, config(kind, **changes))
    longest = 19 - changes.get("pad_token_id", 1) - 1
    assert pair.described.config.max_positions == longest
    check_logits(pair, draw(pair, (longest, 1, 5)))


@pytest.mark.parametrize(("model", "kind"), FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_export_gives_the_same_tensors_back(model, kind, tied):
    check_round_trip(twins(model, config(kind, tie_word_embeddings=tied)))


@pytest.mark.parametrize(("model", "kind"), FAMILIES)
def test_gradients_are_the_same(model, kind):
    check_gradients(twins(model, config(kind)))


@pytest.mark.slow
def test_base_shape():
    pair = twins(XLMRobertaForMaskedLM, XLMRobertaConfig(vocab_size=3001, max_position_embeddings=514, type_vocab_size=1), scale=BASE_SCALE)
    check_logits(pair)
    check_round_trip(pair)

"""ModernBERT: windows, two rotary bases, GeGLU, and the spellings of its configuration."""

import pytest
from their_models import BASE_SCALE, SIZES, check_gradients, check_logits, check_round_trip, draw, twins
from transformers import ModernBertConfig, ModernBertForMaskedLM

from xlm.errors import UserError

IDS = {"pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
LONG = (1, 200, 17, 16, 15, 131, 8, 9, 64)
ALL_BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)


def rope(global_base, local_base):
    return {
        "full_attention": {"rope_type": "default", "rope_theta": global_base},
        "sliding_attention": {"rope_type": "default", "rope_theta": local_base},
    }


def modernbert(**changes):
    values = {**SIZES, "num_hidden_layers": 5, "max_position_embeddings": 200, "local_attention": 16, **IDS, **changes}
    return ModernBertConfig(**values)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_parameters": rope(1000.0, 50.0)},
        {"local_attention": 17},
        {"layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"]},
        {"layer_types": ["full_attention"] * 5},
        ALL_BIASES,
        {"decoder_bias": False},
        {"tie_word_embeddings": False},
    ],
)
def test_words_are_scored_alike_beyond_the_window(changes):
    pair = twins(ModernBertForMaskedLM, modernbert(**changes))
    check_logits(pair, draw(pair, LONG))
    check_round_trip(pair)


def test_gradients_are_the_same():
    check_gradients(twins(ModernBertForMaskedLM, modernbert(local_attention=4)))


def test_older_spellings_say_the_same():
    old = {"global_rope_theta": 1000.0, "local_rope_theta": 50.0, "global_attn_every_n_layers": 3}
    new = modernbert(rope_parameters=rope(1000.0, 50.0))
    pair = twins(ModernBertForMaskedLM, new, rope_parameters=None, layer_types=None, **old)
    config = pair.described.config
    assert (config.rotary_base, config.local_rotary_base, config.global_every, config.local_window) == (1000.0, 50.0, 3, 16)
    check_logits(pair, draw(pair, LONG))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layer_types": ["sliding_attention"] + ["full_attention"] * 4}, "layer_types"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}}, "rope_type yarn"),
        ({"attention_bias": True}, "attention_bias True, mlp_bias False"),
        ({"hidden_activation": "silu"}, "hidden_activation silu"),
    ],
)
def test_what_we_cannot_compute_is_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        twins(ModernBertForMaskedLM, modernbert(), **changes)


@pytest.mark.slow
def test_base_shape():
    pair = twins(ModernBertForMaskedLM, ModernBertConfig(vocab_size=3001, **IDS), scale=BASE_SCALE)
    check_logits(pair, draw(pair, LONG))
    check_round_trip(pair)

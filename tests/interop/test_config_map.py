"""Configurations: what comes in, what is refused, and where a model of ours goes."""

import pytest
import torch
from transformers import AutoConfig

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import differing_fields
from xlm.config.presets import preset_names
from xlm.errors import UserError
from xlm.interop.config_map import choose_family, read_config, write_config
from xlm.interop.families import FAMILIES, family_named
from xlm.interop.family import Facts
from xlm.interop.normal_form import split_generator, without_embedding_scale

FACTS = Facts(vocabulary_size=61, languages=("de", "en"), pad_id=0, unk_id=1, bos_id=2, eos_id=3, mask_id=4)
EXPECTED = {
    "bert": "bert",
    "mbert": "bert",
    "roberta": "xlm-roberta",
    "xlm-r": "xlm-roberta",
    "albert": "albert",
    "electra": "electra",
    "distilbert": "xlm-roberta",
    "modernbert": "modernbert",
    "mmbert": "modernbert",
    "xlm-15": "xlm",
    "xlm-17": "xlm",
    "xlm-100": "xlm",
    "quickstart": "megatron-bert",
}


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_goes_somewhere_and_comes_back_the_same(name):
    config = ModelConfig(preset=name)
    parts = [config] if config.generator is None else [part for part, _ in split_generator(config, {}).values()]
    for part in parts:
        if part.embedding_scale != 1.0:
            part = part.model_copy(update={"embedding_scale": 1.0, "tied_output": False})
        family, json = choose_family(part, FACTS)
        known = [expected for prefix, expected in EXPECTED.items() if name.startswith(prefix)]
        assert known == [] or family.name in known or part.sentence_head
        # A family without an equal has the part as zeros, or the same norm under another name.
        changed = set(differing_fields(part, read_config(json).config))
        assert changed <= ({"final_norm"} if family.name == "megatron-bert" else set()) | {"token_types"}
        # transformers takes every value that was written.
        loaded = AutoConfig.for_model(family.name, **{key: value for key, value in json.items() if key != "model_type"}).to_dict()
        assert {key: loaded[key] for key in json if key != "dtype"} == {key: value for key, value in json.items() if key != "dtype"}


def test_special_ids_are_ours():
    _, json = choose_family(ModelConfig(width=8, layers=1, heads=2, feed_forward=16, max_positions=12, norm_position="post"), FACTS)
    assert (json["pad_token_id"], json["bos_token_id"], json["eos_token_id"], json["mask_token_id"]) == (0, 2, 3, 4)
    assert json["max_position_embeddings"] == 13  # one row in front for the padding piece 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "bart"}, r"no weight map for the family 'bart' \(did you mean 'bert'\?\); allowed: xlm-roberta, bert"),
        ({"architectures": ["BertForQuestionAnswering"]}, "architectures BertForQuestionAnswering; of bert, BertForMaskedLM, BertForPre"),
        ({"hidden_act": "relu"}, "hidden_act relu; of bert, models with gelu or gelu_new"),
        ({"is_decoder": True}, "is_decoder True; bert models with is_decoder False"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type relative_key"),
        ({"num_attention_heads": 7}, "width 768 is not divisible by heads 7"),
        ({"vocab_size": None}, "vocab_size None"),
    ],
)
def test_what_cannot_be_reproduced_is_a_sentence(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        read_config({"model_type": "bert", "vocab_size": 61, **changes})


@pytest.mark.parametrize(("family", "activation"), [("xlm-roberta", "gelu_new"), ("electra", "gelu_new"), ("xlm-roberta", "relu")])
def test_heads_that_compute_another_activation_than_the_layers_are_refused(family, activation):
    with pytest.raises(UserError, match=f"hidden_act {activation}"):
        read_config({"model_type": family, "vocab_size": 61, "hidden_act": activation})


def test_albert_needs_factorised_embeddings():
    with pytest.raises(UserError, match="embedding_size equal to hidden_size"):
        read_config({"model_type": "albert", "vocab_size": 61, "embedding_size": 64, "hidden_size": 64, "num_attention_heads": 4})
    with pytest.raises(UserError, match="inner_group_num 2"):
        read_config({"model_type": "albert", "vocab_size": 61, "inner_group_num": 2})


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("bert", {"positions": "rotary"}, "positions is rotary"),
        ("bert", {"norm_position": "pre"}, "norm_position is pre"),
        ("bert", {"width_scaling": {"base_width": 8, "base_heads": 2}}, "width_scaling is"),
        ("xlm-roberta", {"sentence_head": True}, "sentence_head is True"),
        ("xlm-roberta", {"language_embeddings": True}, "language_embeddings is True"),
        ("distilbert", {"token_types": 2}, "token_types is 2"),
        ("xlm", {}, "feed_forward is 16, and the family's is 32"),
        ("megatron-bert", {"norm_position": "pre", "embedding_norm": True}, "embedding_norm is True"),
        ("megatron-bert", {"norm_position": "pre", "final_norm": "none"}, "final_norm is none"),
        ("albert", {"layer_groups": 1}, "embedding_width is 8"),
        ("bert", {"layer_groups": 1, "layers": 2}, "layer_groups is 1"),
    ],
)
def test_the_field_that_does_not_fit_is_named(family, changes, field):
    values = {"width": 8, "layers": 1, "heads": 2, "feed_forward": 16, "max_positions": 12, "norm_position": "post"}
    with pytest.raises(UserError, match=f"{family} cannot hold this model: its {field}"):
        write_config(family_named(family), ModelConfig(**{**values, **changes}), FACTS)


def test_a_power_of_two_moves_into_the_table_without_a_rounding():
    config = ModelConfig(width=8, layers=1, heads=2, feed_forward=16, max_positions=12, embedding_scale=16.0)
    table = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    plain, state = without_embedding_scale(config, {"encoder.embeddings.tokens.weight": table})
    assert not plain.tied_output
    assert torch.equal(state["lm_head.weight"], table)
    assert torch.equal(state["encoder.embeddings.tokens.weight"] / 16.0, table)


def test_every_family_is_named_like_a_model_type():
    assert all(AutoConfig.for_model(name).model_type == name for name in FAMILIES)

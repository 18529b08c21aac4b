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
    "small": "megatron-bert",
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
        assert family.name in known
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
        ({"max_position_embeddings": None}, "max_position_embeddings null; a whole number is needed, such as 512"),
        ({"hidden_size": "big"}, 'hidden_size "big"; a whole number is needed, such as 768'),
        ({"hidden_size": True}, "hidden_size true; a whole number"),
        ({"layer_norm_eps": "1e-12"}, 'layer_norm_eps "1e-12"; a number is needed'),
        ({"num_hidden_layers": -1}, "num_hidden_layers -1: Input should be"),
        ({"architectures": "BertForQuestionAnswering"}, "architectures BertForQuestionAnswering; of bert, BertForMaskedLM"),
        ({"architectures": {"a": 1}}, "architectures {'a': 1}; of bert"),
        ({"tie_word_embeddings": "perhaps"}, "tie_word_embeddings perhaps: Input should be a valid boolean"),
        ({"model_type": "xlm", "emb_dim": None}, "emb_dim null; a whole number is needed, such as 2048"),
        ({"eos_token_id": []}, "a value of another kind than bert configurations do"),
        ({"model_type": "xlm", "n_langs": None}, "a value of another kind than xlm configurations do"),
        ({"model_type": "xlm", "n_langs": 2, "lang2id": 5}, "a value of another kind than xlm configurations do"),
        ({"model_type": "modernbert", "rope_parameters": {"full_attention": 5}}, "rope_parameters .*; rope_type and rope_theta for full_"),
        ({"model_type": "modernbert", "global_attn_every_n_layers": 0}, "global_attn_every_n_layers 0; a whole number from 1 on"),
        ({"model_type": "modernbert", "layer_types": 3}, "a value of another kind than modernbert configurations do"),
        ({"model_type": "roberta", "pad_token_id": None}, "pad_token_id null; roberta numbers positions from it"),
    ],
)
def test_what_cannot_be_reproduced_is_a_sentence(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        read_config({"model_type": "bert", "vocab_size": 61, **changes})


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_configuration_leaves_out_is_what_their_class_says(name):
    whole = {key: value for key, value in AutoConfig.for_model(name, vocab_size=61).to_dict().items() if value is not None}
    expected = read_config(whole)
    found = read_config({"model_type": name, "vocab_size": 61})
    assert found.config == expected.config
    assert found.family.front_rows({}) == found.family.front_rows(whole)
    assert all(getattr(AutoConfig.for_model(name), field.theirs) == field.default for field in found.family.fields)


def test_a_single_name_of_a_class_is_one_class():
    described = read_config({"model_type": "bert", "vocab_size": 61, "architectures": "BertForPreTraining"})
    assert described.config.sentence_head


def test_mmbert_says_sans_pos_where_nothing_reads_it():
    # As in configurations that public repositories quote; transformers' ModernBERT has no such key.
    theirs = {"model_type": "modernbert", "vocab_size": 61, "num_hidden_layers": 4, "local_rope_theta": 160_000.0}
    assert read_config({**theirs, "position_embedding_type": "sans_pos"}).config == read_config(theirs).config


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

"""What a checkpoint that is not what its configuration says gets, and what is kept of one that is."""

import pytest
import torch
from their_models import SIZES, perturb
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, RobertaConfig, RobertaForMaskedLM

from xlm.errors import UserError
from xlm.interop.config_map import read_config
from xlm.interop.weight_map import export_weights, import_weights

QUERY = "bert.encoder.layer.1.attention.self.query.weight"
WORDS, DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"


@pytest.fixture(scope="module")
def model():
    model = BertForPreTraining(BertConfig(**SIZES, max_position_embeddings=17))
    perturb(model)
    return model


@pytest.fixture
def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.fixture(scope="module")
def json(model):
    return {**model.config.to_dict(), "architectures": ["BertForPreTraining"]}


def take_in(json, state):
    return import_weights(read_config(json), json, state)


def test_missing_surplus_and_misshapen_tensors_are_listed_in_one_sentence(json, state):
    del state[QUERY]
    state["bert.encoder.layer.3.output.dense.bias"] = torch.zeros(24)
    state["cls.predictions.transform.dense.weight"] = torch.zeros(24, 23)
    with pytest.raises(UserError) as caught:
        take_in(json, state)
    said = str(caught.value)
    assert f"1 missing ({QUERY})" in said
    assert "1 surplus (bert.encoder.layer.3.output.dense.bias)" in said
    assert "1 misshapen (cls.predictions.transform.dense.weight (24, 23) instead of (24, 24))" in said


def test_a_long_list_names_each_once_with_the_numbers_of_its_layers(json, state):
    short = {name: tensor for name, tensor in state.items() if ".layer.2." not in name and ".layer.1." not in name}
    with pytest.raises(UserError, match=r"32 missing \(bert\.encoder\.layer\.\{1, 2\}\.") as caught:
        take_in(json, short)
    assert str(caught.value).count(".{1, 2}.") == 16
    assert str(caught.value).count("attention.self.query.weight") == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_names_its_tensor(json, state, value):
    state[QUERY][3, 4] = value
    with pytest.raises(UserError, match=f"tensor '{QUERY}' holds NaN or infinite values"):
        take_in(json, state)


def test_what_is_only_kept_is_looked_at_too():
    """A pooler that our model has no place for would go back out as it came."""
    config = RobertaConfig(**SIZES, max_position_embeddings=19)
    state = RobertaForMaskedLM(config).state_dict()
    json = {**config.to_dict(), "architectures": ["RobertaForMaskedLM"]}
    pooler = torch.zeros(24, 24)
    _, extras = take_in(json, {**state, "roberta.pooler.dense.weight": pooler})
    assert extras["roberta.pooler.dense.weight"] is pooler
    with pytest.raises(UserError, match=r"tensor 'roberta\.pooler\.dense\.weight' holds NaN"):
        take_in(json, {**state, "roberta.pooler.dense.weight": pooler + float("nan")})
    with pytest.raises(UserError, match=r"1 surplus \(roberta\.pooler\.other\)"):
        take_in(json, {**state, "roberta.pooler.other": pooler})


def test_quantised_weights_are_refused(json, state):
    state[QUERY] = state[QUERY].to(torch.int8)
    with pytest.raises(UserError, match=f"tensor '{QUERY}' holds int8 numbers; quantised"):
        take_in(json, state)


def test_a_tied_table_is_needed_once_under_either_name(json, state):
    whole, _ = take_in(json, state)
    for left_out in (WORDS, DECODER):
        half, _ = take_in(json, {name: tensor for name, tensor in state.items() if name != left_out})
        assert all(torch.equal(whole[name], half[name]) for name in whole)
    state[DECODER][0, 0] += 1
    with pytest.raises(UserError, match=f"'{WORDS}' and '{DECODER}' differ, though config.json says that they are tied"):
        take_in(json, state)


def test_what_masked_words_do_not_need_is_kept_and_given_back(state, json):
    masked = {**json, "architectures": ["BertForMaskedLM"]}
    state["bert.embeddings.position_ids"] = torch.arange(17)[None]
    described = read_config(masked)
    ours, extras = import_weights(described, masked, state)
    assert "bert.pooler.dense.weight" in extras
    assert not any(name.startswith("sentence_head") for name in ours)
    back = export_weights(described.family, described.config, masked, ours, extras)
    assert set(back) == set(state)
    assert all(torch.equal(back[name], state[name]) for name in state)


def test_first_checkpoints_spell_norms_gamma_and_beta(json, state):
    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    new, _ = take_in(json, state)
    found, _ = take_in(json, {old(name): tensor for name, tensor in state.items()})
    assert all(torch.equal(new[name], found[name]) for name in new)


def test_half_precision_comes_in_as_fp32(json, state):
    ours, _ = take_in(json, {name: tensor.to(torch.bfloat16) for name, tensor in state.items()})
    assert {tensor.dtype for tensor in ours.values()} == {torch.float32}


def test_a_tensor_brought_to_the_wrong_place_would_be_seen(json, state):
    """The map is not symmetric by accident: queries and keys exchanged give another model."""
    ours, _ = take_in(json, state)
    state[QUERY], state[QUERY.replace("query", "key")] = state[QUERY.replace("query", "key")], state[QUERY]
    swapped, _ = take_in(json, state)
    assert not torch.equal(ours["encoder.blocks.1.attention.qkv.weight"], swapped["encoder.blocks.1.attention.qkv.weight"])


def test_export_of_a_part_that_is_missing_is_zeros(json, model):
    described = read_config(json)
    ours, _ = import_weights(described, json, model.state_dict())
    plain = described.config.model_copy(update={"token_types": 0, "output_bias": False, "sentence_head": False})
    written = {**json, "type_vocab_size": 1}
    theirs = export_weights(described.family, plain, written, ours)
    assert torch.equal(theirs["bert.embeddings.token_type_embeddings.weight"], torch.zeros(1, 24))
    assert not theirs["cls.predictions.bias"].any()
    assert set(theirs) == set(BertForMaskedLM(BertConfig(**SIZES)).state_dict())

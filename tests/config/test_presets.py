"""Presets: as many parameters as transformers' models of the published configurations, and what a recipe does with them."""

from pathlib import Path

import pytest
import torch
import transformers
import yaml

from xlm.config.model import ModelConfig
from xlm.config.presets import FOLDER, preset_names, preset_values, published
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel

QUICKSTART = Path(__file__).parents[2] / "pipelines" / "recipes" / "quickstart.yaml"
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
XLM_LARGE = {"vocab_size": 200_000, "emb_dim": 1280, "n_layers": 16, "n_heads": 16, "use_lang_emb": False}


def modern_bert(local_base, **sizes):
    rotary = {
        "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": local_base},
    }
    return transformers.ModernBertConfig(rope_parameters=rotary, **sizes)


# The published configurations, in transformers' words: what its hub or its own defaults say.
THEIRS = {
    "bert-base": (transformers.BertForPreTraining, transformers.BertConfig(vocab_size=30_522, **BASE)),
    "bert-large": (transformers.BertForPreTraining, transformers.BertConfig(vocab_size=30_522, **LARGE)),
    "mbert": (transformers.BertForPreTraining, transformers.BertConfig(vocab_size=119_547, **BASE)),
    "roberta-base": (transformers.RobertaForMaskedLM, transformers.RobertaConfig(vocab_size=50_265, **BASE, **ROBERTA)),
    "roberta-large": (transformers.RobertaForMaskedLM, transformers.RobertaConfig(vocab_size=50_265, **LARGE, **ROBERTA)),
    "xlm-r-base": (transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig(vocab_size=250_002, **BASE, **ROBERTA)),
    "xlm-r-large": (transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig(vocab_size=250_002, **LARGE, **ROBERTA)),
    "xlm-15": (
        transformers.XLMWithLMHeadModel,
        transformers.XLMConfig(vocab_size=95_000, emb_dim=1024, n_layers=12, n_heads=8, n_langs=15, use_lang_emb=True),
    ),
    "xlm-17": (transformers.XLMWithLMHeadModel, transformers.XLMConfig(n_langs=17, **XLM_LARGE)),
    "xlm-100": (transformers.XLMWithLMHeadModel, transformers.XLMConfig(n_langs=100, **XLM_LARGE)),
    "albert-base": (transformers.AlbertForPreTraining, transformers.AlbertConfig(**BASE)),
    "albert-large": (transformers.AlbertForPreTraining, transformers.AlbertConfig(**LARGE)),
    "electra-small": (transformers.ElectraForPreTraining, transformers.ElectraConfig()),
    "electra-base": (transformers.ElectraForPreTraining, transformers.ElectraConfig(embedding_size=768, **BASE)),
    "distilbert": (transformers.DistilBertForMaskedLM, transformers.DistilBertConfig()),
    "modernbert-base": (transformers.ModernBertForMaskedLM, transformers.ModernBertConfig()),
    "mmbert-base": (transformers.ModernBertForMaskedLM, modern_bert(160_000.0, vocab_size=256_000)),
    "mmbert-small": (
        transformers.ModernBertForMaskedLM,
        modern_bert(160_000.0, vocab_size=256_000, hidden_size=384, num_attention_heads=6),
    ),
}
GENERATORS = {
    "electra-small": transformers.ElectraConfig(hidden_size=64, num_attention_heads=1, intermediate_size=256),
    "electra-base": transformers.ElectraConfig(embedding_size=768, hidden_size=256, num_attention_heads=4, intermediate_size=1024),
}
OWN = set(preset_names()) - set(THEIRS)
# Kind, deviation, that of the tables (None: the same), and the factor of what residual branches give.
FIRST_VALUES = {
    "bert-base": ("truncated_normal", 0.02, None, 1.0),
    "bert-large": ("truncated_normal", 0.02, None, 1.0),
    "mbert": ("truncated_normal", 0.02, None, 1.0),
    "roberta-base": ("normal", 0.02, None, 1.0),
    "roberta-large": ("normal", 0.02, None, 1.0),
    "xlm-r-base": ("normal", 0.02, None, 1.0),
    "xlm-r-large": ("normal", 0.02, None, 1.0),
    "xlm-15": ("normal", 0.02, 0.03125, 1.0),
    "xlm-17": ("normal", 0.02, 0.0279508, 1.0),
    "xlm-100": ("normal", 0.02, 0.0279508, 1.0),
    "albert-base": ("truncated_normal", 0.02, None, 1.0),
    "albert-large": ("truncated_normal", 0.02, None, 1.0),
    "electra-small": ("truncated_normal", 0.02, None, 1.0),
    "electra-base": ("truncated_normal", 0.02, None, 1.0),
    "distilbert": ("normal", 0.02, None, 1.0),
    "modernbert-base": ("truncated_normal", 0.02, None, 0.150756),
    "mmbert-base": ("truncated_normal", 0.02, None, 0.150756),
    "mmbert-small": ("truncated_normal", 0.02, None, 0.150756),
    "quickstart-small": ("normal", 0.02, None, 0.1),
    "small-256x6": ("normal", 0.02, None, 1.0),
    "small-384x12": ("normal", 0.02, None, 1.0),
}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture
def built(monkeypatch):
    """Build models without memory for their parameters, and without values."""
    for place in ("encoder", "pretraining"):
        monkeypatch.setattr(f"xlm.model.{place}.initialise_parameters", lambda *_, **__: None)

    def build(name):
        facts = published(name)
        with torch.device("meta"):
            return PretrainingModel(ModelConfig(preset=name), facts.vocabulary_size, facts.languages)

    return build


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_as_many_parameters_as_the_published_configuration_has(name, built):
    cls, config = THEIRS[name]
    with torch.device("meta"):
        theirs = cls(config)
    # RoBERTa's position rows up to that of padding are never used, and do not exist here.
    unused = (config.pad_token_id + 1) * config.hidden_size if "roberta" in config.model_type else 0
    ours = built(name)
    own = count(ours) - (count(ours.generator) if ours.generator is not None else 0)
    assert own == count(theirs) - unused
    assert published(name).vocabulary_size == config.vocab_size
    assert own == pytest.approx(published(name).parameters, rel=0.04)


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_a_generator_has_its_own_layers_and_none_of_the_tables(name, built):
    with torch.device("meta"):
        theirs = transformers.ElectraForMaskedLM(GENERATORS[name])
    assert count(built(name).generator) == count(theirs) - count(theirs.electra.embeddings)


@pytest.mark.parametrize("name", sorted(OWN))
def test_own_sizes_say_their_parameters(name, built):
    assert count(built(name)) == pytest.approx(published(name).parameters, rel=0.02)


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_choices_that_cost_no_parameters_are_the_published_ones(name):
    ours, theirs = ModelConfig(preset=name), THEIRS[name][1]
    epsilon = getattr(theirs, "norm_eps", None) or getattr(theirs, "layer_norm_eps", 1e-12)  # DistilBERT writes its own into the code
    assert ours.norm_epsilon == epsilon
    dropouts = ("hidden_dropout_prob", "dropout", "mlp_dropout")
    assert ours.dropout == next(getattr(theirs, key) for key in dropouts if hasattr(theirs, key))
    attention = ("attention_probs_dropout_prob", "attention_dropout")
    assert ours.dropout == next(getattr(theirs, key) for key in attention if hasattr(theirs, key)), "attention_dropout is left to dropout"
    heads = next(getattr(theirs, key) for key in ("num_attention_heads", "n_heads") if hasattr(theirs, key))
    assert ours.heads == heads
    activation = getattr(theirs, "hidden_activation", getattr(theirs, "hidden_act", "gelu"))
    expected = "geglu" if theirs.model_type == "modernbert" else {"gelu": "gelu", "gelu_new": "gelu_tanh"}[activation]
    assert ours.activation == expected


@pytest.mark.parametrize("name", preset_names())
def test_first_values_are_the_published_ones(name):
    """They cost no parameters and decide training.

    From the papers that the files name and from released configurations and code (docs/models.md): BERT, ALBERT and ELECTRA cut
    off at two deviations as their first code draws them; XLM's tables 1 / sqrt(width) as its code has them; ModernBERT's
    residual outputs, and mmBERT's, 1 / sqrt(2 x layers). Own sizes are this project's choice.
    """
    ours = ModelConfig(preset=name)
    found = (ours.initialisation, ours.initializer_range, ours.embedding_initializer_range, ours.residual_initial_scale)
    assert found == FIRST_VALUES[name]


@pytest.mark.parametrize("name", ["modernbert-base", "mmbert-base", "mmbert-small"])
def test_local_attention_and_rotary_bases_are_the_published_ones(name):
    ours, theirs = ModelConfig(preset=name), THEIRS[name][1]
    bases = {kind: values["rope_theta"] for kind, values in theirs.rope_parameters.items()}
    assert theirs.local_attention // 2 == ours.reach(1)
    for layer, kind in enumerate(theirs.layer_types):
        assert (ours.reach(layer) is None) == (kind == "full_attention"), layer
        assert ours.rotary_base_of(layer) == bases[kind], layer
    assert ours.max_positions == theirs.max_position_embeddings


@pytest.mark.parametrize("name", preset_names())
def test_every_file_says_its_source(name):
    facts = published(name)
    assert facts.source
    assert min(facts.vocabulary_size, facts.parameters, facts.languages) > 0
    assert set(yaml.safe_load((FOLDER / f"{name}.yaml").read_text())) <= {*ModelConfig.model_fields, "published"}


def test_the_quickstart_uses_its_preset():
    assert load_config(Recipe, QUICKSTART).model == ModelConfig(preset="quickstart-small")


def recipe(tmp_path, model):
    """Write the quickstart's recipe with another model section, whose first line is line 1 of the file."""
    data = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    del data["model"]
    path = tmp_path / "recipe.yaml"
    path.write_text(f"{model}\n{yaml.safe_dump(data)}", encoding="utf-8")
    return path


def test_a_recipe_takes_a_preset_and_changes_some_of_it(tmp_path):
    model = load_config(Recipe, recipe(tmp_path, "model: {preset: xlm-r-base, dropout: 0.0}")).model
    assert model == ModelConfig(**{**preset_values("xlm-r-base"), "dropout": 0.0})


def test_set_names_a_preset_and_changes_it(tmp_path):
    path = recipe(tmp_path, "model: {preset: xlm-r-base, dropout: 0.0}")
    model = load_config(Recipe, path, ["model.preset=electra-small", "model.layers=6", "model.generator.layers=3"]).model
    values = preset_values("electra-small")
    expected = {**values, "dropout": 0.0, "layers": 6, "generator": {**values["generator"], "layers": 3}}
    assert model == ModelConfig(**expected)
    assert ModelConfig(preset="electra-small").generator.layers == 12, "a preset is not changed by its use"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            "model: {preset: xlmr-base}",
            "recipe.yaml:1: 'model': there is no model preset 'xlmr-base' (did you mean 'xlm-r-base'?); ",
        ),
        ("model: {preset: [bert-base]}", "recipe.yaml:1: 'model': there is no model preset '['bert-base']'"),
        ("model: {preset: null}", "there is no model preset 'None'"),
        ("model: {preset: bert-base, headz: 3}", "recipe.yaml:1: unknown key 'model.headz' (did you mean 'heads'?)"),
        ("model: {preset: bert-base, heads: 7}", "recipe.yaml:1: 'model': width 768 is not divisible by heads 7"),
        ("model:\n  preset: bert-base\n  layers: 0", "recipe.yaml:3: 'model.layers': Input should be greater than or equal to 1 (found 0)"),
        ("model: {preset: albert-base, layer_groups: 5}", "layers 12 cannot be shared evenly among layer_groups 5"),
        ("model: {preset: electra-small, generator: {heads: 3}}", "generator.width 64 is not divisible by generator.heads 3"),
        ("model: {preset: electra-small, discriminator_head: false}", "a generator needs a discriminator to train"),
        ("model: {preset: xlm-15, max_positions: 64}", "has rows of 128 tokens, but model.max_positions is 64"),
    ],
)
def test_mistakes_are_sentences_with_file_and_line(tmp_path, model, words):
    with pytest.raises(UserError) as raised:
        load_config(Recipe, recipe(tmp_path, model))
    assert words in str(raised.value)

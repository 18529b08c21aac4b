"""The check that follows an export: it passes for what was written, and fails for anything else."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from xlm.config.model import GeneratorSection, ModelConfig
from xlm.errors import UserError
from xlm.interop.exported import export_folder
from xlm.interop.self_check import TEXTS, check_exported, transformers_module
from xlm.model.pretraining import PretrainingModel
from xlm.training.weights import LoadedWeights
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

CONFIG = ModelConfig(width=24, layers=2, heads=3, feed_forward=40, max_positions=32, norm_position="post")


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(list(TEXTS) * 4, VocabularySpec(size=480))


@pytest.fixture
def exported(vocabulary, tmp_path):
    models, trained = export(CONFIG, vocabulary, tmp_path)
    return models[0], tmp_path, trained


def export(config, vocabulary, folder, languages=()):
    """Export a model with weights of its own everywhere; returns what was written, and the model."""
    model = PretrainingModel(config, vocabulary.size, len(languages), seed=1)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    weights = LoadedWeights(config, vocabulary.size, vocabulary.fingerprint, languages, 7, "fp32", dict(model.state_dict()))
    return export_folder(weights, vocabulary, folder, recipe_fingerprint="recipe"), weights.build()


def test_what_was_written_agrees(exported, vocabulary):
    model, folder, trained = exported
    result = check_exported(model, folder, vocabulary, trained)
    assert result.worst <= 1e-5
    assert result.tokens > 100


def test_one_changed_number_is_found(exported, vocabulary):
    model, folder, trained = exported
    state = load_file(folder / "model.safetensors")
    state["roberta.encoder.layer.1.output.dense.bias"][0] += 1
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError, match="scores of tokens differ by"):
        check_exported(model, folder, vocabulary, trained)


def test_one_changed_id_is_found(exported, vocabulary):
    model, folder, trained = exported
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    pieces = tokenizer["model"]["vocab"]
    letter = next(number for number, piece in enumerate(pieces) if piece[0] == "a")
    pieces[letter], pieces[letter - 1] = pieces[letter - 1], pieces[letter]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(RuntimeError, match="the tokenizer gives other ids"):
        check_exported(model, folder, vocabulary, trained)


def test_without_transformers_the_command_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install '\.\[hf\]'"):
        transformers_module()


def test_a_model_of_bits_that_are_no_scores_is_found(exported, vocabulary):
    model, folder, trained = exported
    state = load_file(folder / "model.safetensors")
    state["lm_head.bias"][0] = torch.nan
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError, match="scores of tokens differ by nan"):
        check_exported(model, folder, vocabulary, trained)


SIZES = {"width": 24, "layers": 2, "heads": 3, "feed_forward": 96, "max_positions": 64}
SENTENCES = {**SIZES, "norm_position": "post", "sentence_head": True}
PAIRED = {"language_model_head": False, "discriminator_head": True, "embedding_width": 10, "norm_position": "post"}
SECTION = GeneratorSection(width=12, layers=2, heads=2, feed_forward=20)
# Everything that export folds, splits or lays out anew, against the model as it was before.
MODELS = {
    "bert": {**SENTENCES, "token_types": 2},
    "albert": {**SENTENCES, "embedding_width": 10, "layer_groups": 1, "token_types": 2},
    "megatron-bert": {**SIZES, "embedding_scale": 16.0, "token_types": 2},
    "xlm": {**SIZES, "norm_position": "post", "head_transform": False, "language_embeddings": True, "embedding_scale": 4.0},
    "electra": {**SIZES, **PAIRED, "generator": SECTION, "token_types": 2},
    "electra, scaled": {**SIZES, **PAIRED, "generator": SECTION, "embedding_scale": 16.0},
}
SENTENCE_TENSORS = {
    "bert": ("bert.pooler.dense.bias", "cls.seq_relationship.weight"),
    "albert": ("albert.pooler.weight", "sop_classifier.classifier.bias"),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_part_agrees_with_the_model_that_was_trained(name, vocabulary, tmp_path):
    models, trained = export(ModelConfig(**MODELS[name]), vocabulary, tmp_path, languages=("de", "en", "zh-Hans"))
    assert all(model.family == name.split(",")[0] for model in models)
    assert len(models) == (2 if name.startswith("electra") else 1)
    for model in models:
        result = check_exported(model, model.folder(tmp_path), vocabulary, trained)
        assert result.worst <= 1e-5
        assert result.largest > 0.1


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in SENTENCE_TENSORS.items() for name in names])
def test_a_changed_sentence_head_is_found(family, name, vocabulary, tmp_path):
    (model,), trained = export(ModelConfig(**MODELS[family]), vocabulary, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state[name].view(-1)[0] += 5
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError, match="scores of sentences differ by"):
        check_exported(model, tmp_path, vocabulary, trained)


def test_a_mistake_made_while_folding_is_found(vocabulary, tmp_path, monkeypatch):
    def forgotten(config, state):
        return config.model_copy(update={"embedding_scale": 1.0}), dict(state)

    monkeypatch.setattr("xlm.interop.exported.without_embedding_scale", forgotten)
    (model,), trained = export(ModelConfig(**MODELS["megatron-bert"]), vocabulary, tmp_path)
    with pytest.raises(RuntimeError, match="scores of tokens differ by"):
        check_exported(model, tmp_path, vocabulary, trained)

"""The check that follows an export: it passes for what was written, and fails for anything else."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from xlm.config.model import ModelConfig
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
    model = PretrainingModel(CONFIG, vocabulary.size, 0)
    model.initialise(seed=1)
    weights = LoadedWeights(CONFIG, vocabulary.size, vocabulary.fingerprint, (), 7, "fp32", dict(model.state_dict()))
    return export_folder(weights, vocabulary, tmp_path, recipe_fingerprint="recipe")[0], tmp_path


def test_what_was_written_agrees(exported, vocabulary):
    model, folder = exported
    result = check_exported(model, folder, vocabulary, 0)
    assert result.worst <= 1e-5
    assert result.tokens > 100


def test_one_changed_number_is_found(exported, vocabulary):
    model, folder = exported
    state = load_file(folder / "model.safetensors")
    state["roberta.encoder.layer.1.output.dense.bias"][0] += 1
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError, match="scores differ by"):
        check_exported(model, folder, vocabulary, 0)


def test_one_changed_id_is_found(exported, vocabulary):
    model, folder = exported
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    pieces = tokenizer["model"]["vocab"]
    letter = next(number for number, piece in enumerate(pieces) if piece[0] == "a")
    pieces[letter], pieces[letter - 1] = pieces[letter - 1], pieces[letter]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(RuntimeError, match="the tokenizer gives other ids"):
        check_exported(model, folder, vocabulary, 0)


def test_without_transformers_the_command_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r'pip install "transformers>=5\.24,<6"'):
        transformers_module()


def test_a_model_of_bits_that_are_no_scores_is_found(exported, vocabulary):
    model, folder = exported
    state = load_file(folder / "model.safetensors")
    state["lm_head.bias"][0] = torch.nan
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError, match="scores differ by nan"):
        check_exported(model, folder, vocabulary, 0)

import json

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, VOCABULARY, make_rows, pack
from safetensors.torch import load_file, save_file

from xlm.config.model import GeneratorSection, WidthScalingSection
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.weights import DESCRIPTION, WEIGHTS, ModelDescription, load_model_weights, write_model_weights

UNTIED = MODEL.model_copy(update={"tied_output": False})


def write(folder, config=MODEL):
    model = PretrainingModel(config, VOCABULARY, len(LANGUAGES))
    model.initialise(4)
    description = ModelDescription(config.model_dump(mode="json"), VOCABULARY, "voc", LANGUAGES, 7, "bf16", "recipe")
    write_model_weights(folder, model.state_dict(), description)
    return model


@pytest.mark.parametrize("config", [MODEL, UNTIED], ids=["tied", "untied"])
def test_the_model_built_from_them_computes_the_same(tmp_path, config):
    model = write(tmp_path, config).eval()
    loaded = load_model_weights(tmp_path)
    assert (loaded.vocabulary_size, loaded.languages, loaded.step) == (VOCABULARY, LANGUAGES, 7)
    built = loaded.build()
    batch = pack(make_rows(0))
    weights = torch.ones(len(batch.labels))
    assert torch.equal(built.language_model_loss(batch, weights).losses, model.language_model_loss(batch, weights).losses)
    tied = built.output_table is built.encoder.embeddings.tokens.weight
    assert tied == config.tied_output


@pytest.mark.parametrize(
    ("expect", "vocabulary", "sentence"),
    [
        (MODEL.model_copy(update={"width": 32}), None, r"of another model: its width is 16, the recipe's model\.width is 32"),
        (MODEL.model_copy(update={"norm_position": "post"}), None, "its norm_position is pre"),
        (None, "other", "trained with vocabulary voc, but the vocabulary at hand is other"),
    ],
)
def test_a_checkpoint_of_another_model_or_vocabulary_is_one_sentence(tmp_path, expect, vocabulary, sentence):
    write(tmp_path)
    with pytest.raises(UserError, match=sentence) as caught:
        load_model_weights(tmp_path, expect=expect, vocabulary_fingerprint=vocabulary)
    assert "\n" not in str(caught.value)


ELECTRA = {"discriminator_head": True, "generator": GeneratorSection(width=8, layers=1, heads=2, feed_forward=16)}
SCALED = {"width_scaling": WidthScalingSection(base_width=8, base_heads=2)}


@pytest.mark.parametrize("sections", [ELECTRA, SCALED], ids=["generator", "width scaling"])
def test_the_field_that_differs_is_named_and_not_a_section_that_is_the_same(tmp_path, sections):
    config = MODEL.model_copy(update=sections)
    write(tmp_path, config)
    load_model_weights(tmp_path, expect=config.model_copy(update={"embedding_width": MODEL.width}))  # spelled out
    with pytest.raises(UserError, match=r"its dropout is 0\.0, the recipe's model\.dropout is 0\.1"):
        load_model_weights(tmp_path, expect=config.model_copy(update={"dropout": 0.1}))


def change_weights(folder, change):
    state = load_file(folder / WEIGHTS)
    change(state)
    save_file(state, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda state: state.pop("lm_head.bias"), r"tensor 'lm_head\.bias' is missing"),
        (lambda state: state.update({"lm_head.bias": torch.zeros(3)}), r"tensor 'lm_head\.bias' has shape \(3,\), the model needs \(50,\)"),
        (lambda state: state.update(strange=torch.zeros(1)), "tensor 'strange' is not part of the model"),
    ],
)
def test_tensors_that_are_not_the_models_are_named(tmp_path, change, sentence):
    write(tmp_path)
    change_weights(tmp_path, change)
    with pytest.raises(UserError, match=sentence):
        load_model_weights(tmp_path)


def test_the_number_of_elements_is_counted(tmp_path):
    write(tmp_path)
    path = tmp_path / DESCRIPTION
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "elements": description["elements"] + 1}), encoding="utf-8")
    with pytest.raises(UserError, match="numbers where"):
        load_model_weights(tmp_path)


def test_missing_and_damaged_files_are_sentences(tmp_path):
    with pytest.raises(UserError, match="not a checkpoint"):
        load_model_weights(tmp_path)
    write(tmp_path)
    (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:1000])
    with pytest.raises(UserError, match="these weights are damaged"):
        load_model_weights(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(UserError, match="has no weights"):
        load_model_weights(tmp_path)
    (tmp_path / DESCRIPTION).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="description is damaged"):
        load_model_weights(tmp_path)


def test_reading_weights_needs_no_deepspeed(tmp_path):
    import subprocess
    import sys

    write(tmp_path)
    code = (
        "import sys; from pathlib import Path; from xlm.training.checkpoint import load_model_weights; "
        f"load_model_weights(Path({str(tmp_path)!r})); sys.exit('deepspeed' in sys.modules or 'mlflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

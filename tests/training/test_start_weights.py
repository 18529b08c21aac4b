"""What a run starts from: weights of another model, its languages in this run's order, and what is refused."""

from types import SimpleNamespace

import pytest
import torch

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.assembly import initial_model
from xlm.training.start_weights import LANGUAGES, start_fingerprint, start_weights
from xlm.training.weights import ModelDescription, write_model_weights

CONFIG = ModelConfig(width=8, layers=1, heads=2, feed_forward=16, max_positions=12, language_embeddings=True)
KNOWN = ("de", "en", "sw")


@pytest.fixture
def folder(tmp_path):
    model = PretrainingModel(CONFIG, 20, len(KNOWN))
    model.initialise(seed=3)
    description = ModelDescription(CONFIG.model_dump(mode="json"), 20, "fingerprint", KNOWN, 7, "fp32", "recipe")
    write_model_weights(tmp_path, model.state_dict(), description)
    return tmp_path


def changed(**values):
    return CONFIG.model_copy(update=values)


def test_languages_come_in_the_order_of_the_run(folder):
    before = start_weights(folder, CONFIG, "fingerprint", KNOWN)
    after = start_weights(folder, CONFIG, "fingerprint", ("sw", "de"))
    assert torch.equal(after[LANGUAGES], before[LANGUAGES][[2, 0]])
    assert all(torch.equal(before[name], after[name]) for name in before if name != LANGUAGES)


def test_dropout_and_first_values_may_differ_and_spelling_does_not_count(folder):
    other = changed(dropout=0.1, stochastic_depth=0.1, initializer_range=0.1, embedding_width=8, embedding_norm=False)
    assert start_weights(folder, other, "fingerprint", KNOWN).keys() == start_weights(folder, CONFIG, "fingerprint", KNOWN).keys()


@pytest.mark.parametrize(
    ("config", "vocabulary", "languages", "sentence"),
    [
        (changed(heads=4), "fingerprint", KNOWN, r"its heads is 2, the recipe's model\.heads is 4"),
        (changed(final_norm="head"), "fingerprint", KNOWN, r"its final_norm is encoder, the recipe's model\.final_norm is head"),
        (CONFIG, "another", KNOWN, "trained with vocabulary fingerprint, but the vocabulary at hand is another"),
        (CONFIG, "fingerprint", ("en", "tr"), "no language embedding for tr; it knows de, en, sw"),
    ],
)
def test_what_does_not_fit_is_named(folder, config, vocabulary, languages, sentence):
    with pytest.raises(UserError, match=sentence):
        start_weights(folder, config, vocabulary, languages)


def test_the_fingerprint_is_of_what_the_folder_holds(folder, tmp_path):
    before = start_fingerprint(folder)
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.seek(-4, 2)
        stream.write(b"\0\0\0\1")
    assert start_fingerprint(folder) != before
    with pytest.raises(UserError, match="start_from needs a folder with"):
        start_fingerprint(tmp_path / "nowhere")


def test_the_initial_model_has_these_weights(folder):
    recipe = SimpleNamespace(model=CONFIG, seed=1, start_from=folder)
    inputs = SimpleNamespace(
        plan=SimpleNamespace(languages=KNOWN), vocabulary=SimpleNamespace(size=20, fingerprint="fingerprint"), embeddings=None
    )
    expected = start_weights(folder, CONFIG, "fingerprint", KNOWN)
    state = initial_model(recipe, inputs).state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)

"""What a run starts from: weights of another model, its languages in this run's order, and what is refused."""

from types import SimpleNamespace

import pytest
import torch
from made_up_run import RECIPE

from xlm.config.model import ModelConfig
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.assembly import initial_model
from xlm.training.start_weights import LANGUAGES, start_fingerprint, start_weights
from xlm.training.trainable import check_trainable
from xlm.training.weights import ModelDescription, write_model_weights

CONFIG = ModelConfig(width=8, layers=1, heads=2, feed_forward=16, max_positions=12, language_embeddings=True)
KNOWN = ("de", "en", "sw")


# What each part of a model needs to be trained, and the objectives that train it.
HEADS = {
    "mlm": {},
    "nsp": {"sentence_head": True},
    "contrastive": {"language_model_head": False},
    "rtd": {
        "language_model_head": False,
        "discriminator_head": True,
        "generator": {"width": 4, "layers": 1, "heads": 1, "feed_forward": 8},
    },
}
PREFIXES = ("lm_head.", "sentence_head.", "discriminator_head.", "generator.")


def write(folder, config):
    model = PretrainingModel(config, 20, len(KNOWN), seed=3)
    description = ModelDescription(config.model_dump(mode="json"), 20, "fingerprint", KNOWN, 7, "fp32", "recipe")
    write_model_weights(folder, model.state_dict(), description)
    return model.state_dict()


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, CONFIG)
    return tmp_path


def changed(**values):
    return CONFIG.model_copy(update=values)


def test_languages_come_in_the_order_of_the_run(folder):
    before = start_weights(folder, CONFIG, "fingerprint", KNOWN).state
    after = start_weights(folder, CONFIG, "fingerprint", ("sw", "de")).state
    assert torch.equal(after[LANGUAGES], before[LANGUAGES][[2, 0]])
    assert all(torch.equal(before[name], after[name]) for name in before if name != LANGUAGES)


def test_dropout_and_first_values_may_differ_and_spelling_does_not_count(folder):
    other = changed(dropout=0.1, stochastic_depth=0.1, initializer_range=0.1, embedding_width=8, embedding_norm=False)
    found, same = (start_weights(folder, config, "fingerprint", KNOWN) for config in (other, CONFIG))
    assert found.state.keys() == same.state.keys()
    assert found.sentence() is None


@pytest.mark.parametrize(
    ("config", "vocabulary", "languages", "sentence"),
    [
        (changed(heads=4), "fingerprint", KNOWN, r"its heads is 2, the recipe's model\.heads is 4"),
        (changed(max_positions=24), "fingerprint", KNOWN, r"its max_positions is 12, the recipe's model\.max_positions is 24"),
        (changed(head_transform=False), "fingerprint", KNOWN, "its head_transform is True"),
        (changed(sentence_head=True, output_bias=False), "fingerprint", KNOWN, "its output_bias is True"),
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
    expected = start_weights(folder, CONFIG, "fingerprint", KNOWN).state
    state = initial_model(recipe, inputs).state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def started(folder, recipe, languages=KNOWN):
    inputs = SimpleNamespace(
        plan=SimpleNamespace(languages=languages), vocabulary=SimpleNamespace(size=20, fingerprint="fingerprint"), embeddings=None
    )
    return initial_model(recipe, inputs).state_dict()


@pytest.mark.parametrize("after", HEADS)
@pytest.mark.parametrize("before", HEADS)
def test_a_run_goes_on_with_any_objective_whatever_heads_the_weights_have(tmp_path, capsys, before, after):
    """What is kept are the weights, what is new is what a model of this seed draws; the recipe passes all checks."""
    sizes = {**CONFIG.model_dump(), "token_types": 2, "max_positions": 64}
    weights = write(tmp_path, ModelConfig(**{**sizes, **HEADS[before]}))
    phases = [{**phase, "objectives": {after: {"share": 1.0}}} for phase in RECIPE["phases"]]
    recipe = Recipe.model_validate({**RECIPE, "phases": phases, "model": {**sizes, **HEADS[after]}, "start_from": str(tmp_path)})
    check_trainable(recipe)
    state = started(tmp_path, recipe)
    drawn = PretrainingModel(recipe.model, 20, len(KNOWN), seed=recipe.seed).state_dict()
    assert state.keys() == drawn.keys()
    for name, tensor in state.items():
        assert torch.equal(tensor, weights.get(name, drawn[name])), name
        assert name in weights or name.startswith(PREFIXES)
    out = capsys.readouterr().out
    left = {name.split(".")[0] for name in weights.keys() - state.keys()}
    assert out.count("left out") == len(left)
    assert out.count("is new") == len({name.split(".")[0] for name in state.keys() - weights.keys()})
    assert out.count("\n") == (before != after)
    if before == "nsp" and after == "mlm":
        assert "sentence_head (4 tensors) is left out" in out


def test_a_norm_of_the_head_comes_and_goes_with_it(tmp_path):
    with_head = changed(final_norm="head")
    write(tmp_path, with_head)
    without = changed(final_norm="none", language_model_head=False)
    assert "lm_head.input_norm.weight" not in started(tmp_path, SimpleNamespace(model=without, seed=1, start_from=tmp_path))
    with pytest.raises(UserError, match="its final_norm is head"):
        start_weights(tmp_path, changed(final_norm="encoder", language_model_head=False), "fingerprint", KNOWN)
    write(tmp_path, without)
    assert start_weights(tmp_path, with_head, "fingerprint", KNOWN).new == ("language_model_head",)


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_positions_without_a_table_may_become_longer(tmp_path, positions):
    write(tmp_path, changed(positions=positions))
    longer = changed(positions=positions, max_positions=48)
    state = started(tmp_path, SimpleNamespace(model=longer, seed=1, start_from=tmp_path))
    PretrainingModel(longer, 20, len(KNOWN)).load_state_dict(state)

import pytest
import torch

from xlm.config.model import ModelConfig
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.evaluation.trained_encoder import TrainedEncoder, load_trained_encoder, random_twin
from xlm.model.pretraining import PretrainingModel
from xlm.runs.fingerprint import file_sha256
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage, write_json
from xlm.training.weights import ModelDescription, write_model_weights
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import MODEL_FILE

MODEL = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "max_positions": 16, "language_embeddings": True}
RECIPE = {
    "name": "small",
    "seed": 1,
    "corpora": {"manifest": "none.yaml"},
    "vocabulary": "none.yaml",
    "embeddings": {"kind": "random"},
    "model": MODEL,
    "phases": [
        {
            "name": "one",
            "steps": 1,
            "sequence_length": 16,
            "sampling": {"kind": "temperature", "alpha": 1},
            "objectives": {"mlm": {"share": 1}},
        }
    ],
    "training": {"tokens_per_step": 16, "micro_batch_tokens": 16, "precision": "fp32", "optimizer": {"learning_rate": 0.001}},
}


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(["turn on the light", "open the door", "öffne die tür"] * 5, VocabularySpec(size=300, threads=1))


@pytest.fixture
def run(tmp_path, vocabulary):
    run = RunFolder(tmp_path)
    run.vocabulary.mkdir()
    (run.vocabulary / MODEL_FILE).write_bytes(vocabulary.serialized_model)
    return run


def save(run, vocabulary, step, seed, precision="fp32"):
    """Write the checkpoint of a step, and say that training ended there."""
    model = PretrainingModel(ModelConfig(**MODEL), vocabulary.size, 2)
    model.initialise(seed)
    folder = run.train / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    description = ModelDescription(MODEL, vocabulary.size, vocabulary.fingerprint, ("en", "de"), step, precision, "made-up")
    write_model_weights(folder, model.state_dict(), description)
    files = {path.name: {"size_bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in folder.iterdir()}
    write_json(folder / "complete.json", {"step": step, "files": files})
    Stage(run.train, "train", {"made": "up"}).finish_in_place({"steps": step}, 0.0, 0)
    return model


def test_last_checkpoint_is_loaded_with_its_weights(run, vocabulary):
    save(run, vocabulary, 5, seed=1)
    last = save(run, vocabulary, 12, seed=2)
    trained = load_trained_encoder(Recipe.model_validate(RECIPE), run)
    assert trained.step == 12
    assert trained.languages == ("en", "de")
    assert trained.precision == "fp32"
    assert not trained.encoder.training
    for name, value in last.encoder.state_dict().items():
        assert torch.equal(trained.encoder.state_dict()[name], value), name


def test_no_checkpoint_says_which_stage_to_run(run):
    with pytest.raises(UserError, match=r"run pipelines/pretrain\.py first"):
        load_trained_encoder(Recipe.model_validate(RECIPE), run)


def test_a_damaged_last_checkpoint_is_not_replaced_by_an_earlier_one(run, vocabulary):
    save(run, vocabulary, 5, seed=1)
    save(run, vocabulary, 12, seed=2)
    weights = run.train / "checkpoints" / "step-00000012" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"finished at step 12, but the newest whole checkpoint is of step 5; run pipelines/pretrain\.py"):
        load_trained_encoder(Recipe.model_validate(RECIPE), run)


def test_scores_are_made_in_the_precision_of_the_checkpoint_not_of_the_recipe(run, vocabulary, monkeypatch):
    save(run, vocabulary, 5, seed=1, precision="bf16")
    for capabilities, precision in (({"amx_bf16": True}, "bf16"), ({}, "fp32")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert load_trained_encoder(Recipe.model_validate(RECIPE), run).precision == precision


def test_random_twin_has_the_shape_and_none_of_the_weights(run, vocabulary):
    save(run, vocabulary, 5, seed=1)
    trained = load_trained_encoder(Recipe.model_validate(RECIPE), run)
    first, again, other = random_twin(trained, 8), random_twin(trained, 8), random_twin(trained, 9)
    weights = [encoder.blocks[0].attention.qkv.weight for encoder in (trained.encoder, first, again, other)]
    assert weights[0].shape == weights[1].shape
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[3])


def test_language_ids_are_passed_or_refused(run, vocabulary):
    save(run, vocabulary, 5, seed=1)
    trained = load_trained_encoder(Recipe.model_validate(RECIPE), run)
    assert trained.language_id("de") == 1
    with pytest.raises(UserError, match="no language embedding for 'fr'; it knows en, de"):
        trained.language_id("fr")


def test_model_without_language_embeddings_takes_any_language(vocabulary):
    config = ModelConfig(**{**MODEL, "language_embeddings": False})
    model = PretrainingModel(config, vocabulary.size, 2)
    trained = TrainedEncoder(model.encoder, vocabulary, config, ("en",), 1, None, "fp32")
    assert trained.language_id("sw") is None

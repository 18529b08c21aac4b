from collections import Counter

import pytest

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.evaluation.provenance import provenance
from xlm.evaluation.trained_encoder import TrainedEncoder
from xlm.model.encoder import Encoder
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage, write_json
from xlm.tasks.evaluation_sets import TASKS_RECORD
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

RECIPE = {
    "name": "small",
    "seed": 5,
    "corpora": {"manifest": "none.yaml"},
    "vocabulary": "none.yaml",
    "embeddings": {"kind": "random"},
    "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "max_positions": 16},
    "phases": [
        {
            "name": "one",
            "steps": 1,
            "sequence_length": 16,
            "sampling": {"kind": "temperature", "alpha": 1},
            "objectives": {"mlm": {"share": 1}},
        }
    ],
    "training": {"tokens_per_step": 16, "micro_batch_tokens": 16, "optimizer": {"learning_rate": 0.001}},
}


def trained(recipe, run):
    vocabulary = train_vocabulary(["turn on the light", "open the door"] * 5, VocabularySpec(size=290, threads=1))
    encoder = Encoder(recipe.model, vocabulary.size, 1)
    checkpoint = run.train / "checkpoints" / "step-00000009"
    return TrainedEncoder(encoder, vocabulary, recipe.model, ("en",), 9, checkpoint, "bf16")


def test_everything_a_score_depends_on_is_named(tmp_path):
    recipe, run = Recipe.model_validate(RECIPE), RunFolder(tmp_path)
    with Stage(run.tasks, "tasks", {"seed": "x"}).write() as output:
        record = {"intents": {"en": {"fingerprint": "a"}}, "retrieval": {"de": {"fingerprint": "b"}}}
        write_json(output.folder / TASKS_RECORD, record)
    found = provenance(recipe, run, trained(recipe, run), protocol="as agreed", texts=Counter(texts=10, cut=2))
    assert found["checkpoint"] == "train/checkpoints/step-00000009"
    assert found["evaluation_sets"] == {"intents": {"en": "a"}, "retrieval": {"de": "b"}}
    assert (found["step"], found["precision"], found["texts_cut"], found["pretraining_seed"]) == (9, "bf16", 2, 5)
    assert (found["protocol"], found["seeds"]) == ("as agreed", [1, 2, 3])
    assert "90 %" in found["seeds_vary"]
    assert "template" in found["interval"]
    assert {"python", "torch", "numpy", "scikit-learn", "sentencepiece", "xlm"} <= set(found["versions"])


def test_missing_tasks_say_what_to_run(tmp_path):
    recipe, run = Recipe.model_validate(RECIPE), RunFolder(tmp_path)
    with pytest.raises(UserError, match="'tasks' has not finished"):
        provenance(recipe, run, trained(recipe, run), protocol="", texts={})

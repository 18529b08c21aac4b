"""Pretraining goes on from a folder of transformers, as docs/interop.md tells: import, the stages before training, real steps."""

import json
import math
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from made_up_run import RECIPE, SAMPLING, write_recipe, write_shards
from transformers import XLMRobertaForMaskedLM, XLMRobertaTokenizer
from warm_scripts import WarmScript

from tests.pipelines.scripts import call
from tests.pipelines.test_import_hf import xlm_r
from xlm.config.recipe import Recipe
from xlm.runs.folder import RunFolder
from xlm.training.assembly import read_inputs
from xlm.training.checkpoint import load_model_weights
from xlm.training.distributed import Process
from xlm.training.start_weights import start_fingerprint
from xlm.vocab.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
ZERO0 = ROOT / "deepspeed_configs" / "zero0.json"
# A rate that moves no weight, so that the checkpoint of the first step holds those it started from; then one that does.
STILL = {
    "name": "still",
    "steps": 1,
    "sequence_length": 128,
    "sampling": SAMPLING,
    "objectives": {"tlm": {"share": 0.5}, "mlm": {"share": 0.5}},
    "learning_rate": 1e-30,
}
TRAINED = {**STILL, "name": "trained", "steps": 5, "learning_rate": 0.003}


@dataclass
class Run:
    """A finished run that started from their model."""

    theirs: XLMRobertaForMaskedLM
    folder: Path  # of theirs
    imported: Path
    recipe: Recipe
    root: Path

    def weights(self, step):
        return load_model_weights(self.root / "train" / "checkpoints" / f"step-{step:08d}").state_dict

    def lines(self):
        return [json.loads(line) for line in (self.root / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("start")
    theirs = xlm_r(root / "theirs", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    imported, recipe_path = root / "imported", root / "recipe.yaml"
    assert call("import_hf.py", root / "theirs", imported) == 0
    recipe = write_recipe(
        recipe_path,
        {
            **RECIPE,
            "vocabulary": str(imported),
            "start_from": str(imported),
            **yaml.safe_load((imported / "model.yaml").read_text(encoding="utf-8")),
            "phases": [STILL, TRAINED],
            "training": {
                **RECIPE["training"],
                "precision": "fp32",
                "micro_batch_tokens": 256,
                "schedule": {"kind": "constant"},
                "checkpoint": {"every_steps": 1, "keep_last": 9},
                "log_every_steps": 1,
            },
        },
    )
    files = ["--recipe", recipe_path, "--run-dir", root / "run"]
    # The corpus comes with the shards; the vocabulary is the one taken over.
    write_shards(RunFolder(root / "run"), recipe, Vocabulary.load(imported))
    assert call("build_vocab.py", *files) == 0
    command = [ROOT / "pipelines" / "pretrain.py", *files, "--deepspeed_config", ZERO0]
    # Nobody is there, which costs less time than the tables of a new store.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    script = WarmScript(command, env=environment, cwd=root, output=root / "printed")
    assert script.wait() == 0, (root / "printed").read_text(encoding="utf-8")
    return Run(theirs, root / "theirs", imported, recipe, root / "run")


@torch.no_grad()
def their_loss(run, batches):
    """The mean over the predictions of a step, from their model with their ids, a sequence at a time."""
    ours = Vocabulary.load(run.imported)
    of_theirs = torch.tensor(XLMRobertaTokenizer.from_pretrained(run.folder).convert_tokens_to_ids(list(ours.pieces)))
    losses = []
    for batch in batches:
        ids = of_theirs[batch.input_ids]
        scores = torch.cat([run.theirs(input_ids=ids[None, start:end]).logits[0] for start, end in pairwise(batch.cu_seqlens.tolist())])
        labels = of_theirs[batch.labels]
        losses.append(torch.nn.functional.cross_entropy(scores[batch.predict_positions], labels, reduction="none"))
    return float(torch.cat(losses).mean())


def test_the_first_loss_is_that_of_their_model_on_the_same_batch(finished):
    batches = read_inputs(finished.recipe, RunFolder(finished.root), Process(0, 1, 0, 1)).loader.batch(0)
    assert {0, 1} == {code for batch in batches for code in batch.prediction_objective.tolist()}  # mlm and tlm
    assert finished.lines()[0]["loss"] == pytest.approx(their_loss(finished, batches), rel=1e-5)


def test_the_first_step_finds_the_imported_weights_and_later_ones_train_them(finished):
    expected = load_model_weights(finished.imported).state_dict
    first, last = finished.weights(1), finished.weights(6)
    assert first.keys() == last.keys() == expected.keys()
    assert all(torch.equal(first[name], expected[name]) for name in expected)
    assert not any(torch.equal(last[name], expected[name]) for name in expected)


def test_the_run_ends_as_any_other_and_records_what_it_started_from(finished):
    assert [(line["step"], line["phase"]) for line in finished.lines()] == [(1, "still"), *((step, "trained") for step in range(2, 7))]
    assert all(math.isfinite(line["loss"]) for line in finished.lines())
    stage = json.loads((finished.root / "train" / "stage.json").read_text(encoding="utf-8"))
    assert stage["inputs"]["start_from"] == start_fingerprint(finished.imported)

"""The two evaluation stages on a small run folder: a made-up language pair, a random checkpoint, the real scripts."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.corpora.documents import SentencePair
from xlm.corpora.store import write_pairs
from xlm.errors import UserError
from xlm.evaluation.dev_scores import dev_scores
from xlm.model.pretraining import PretrainingModel
from xlm.runs.fingerprint import file_sha256
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage, write_json
from xlm.tasks.evaluation_sets import (
    TASKS_RECORD,
    LabelledText,
    RetrievalPair,
    load_labelled,
    load_retrieval,
    save_labelled,
    save_retrieval,
)
from xlm.training.weights import ModelDescription, write_model_weights
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import MODEL_FILE, Vocabulary

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
GERMAN = {"light": "licht", "kitchen": "küche", "open": "öffne", "door": "tür", "weather": "wetter", "today": "heute", "the": "das"}
TEMPLATES = {
    "Light": ["turn on the light {}", "light on {}", "make light {}", "the light {} please", "switch light {}", "more light {}"],
    "Door": ["open the door {}", "door open {}", "unlock door {}", "the door {} please", "shut door {}", "door shut {}"],
    "Weather": ["weather {}", "the weather {}", "show weather {}", "weather today {}", "what weather {}", "weather please {}"],
}
PLACES = ["kitchen", "garden", "hall", "today"]
RECIPE = {
    "name": "small",
    "seed": 1,
    "corpora": {"manifest": "none.yaml"},
    "vocabulary": "none.yaml",
    "tasks": {"seed": 7, "languages": ["en", "de"]},
    "embeddings": {"kind": "random"},
    "model": {"width": 32, "layers": 1, "heads": 2, "feed_forward": 64, "max_positions": 32, "initializer_range": 0.2},
    "phases": [
        {
            "name": "one",
            "steps": 1,
            "sequence_length": 32,
            "sampling": {"kind": "temperature", "alpha": 1},
            "objectives": {"mlm": {"share": 1}},
        }
    ],
    "training": {"tokens_per_step": 32, "micro_batch_tokens": 32, "precision": "fp32", "optimizer": {"learning_rate": 0.001}},
    "evaluation": {
        "seeds": [1, 2],
        "finetune_epochs": 1,
        "bootstrap_samples": 100,
        "mean_languages": ["de"],
        "code_switching_rates": [0.5, 1.0],
        "code_switching_languages": ["de"],
    },
}


def german(text):
    return " ".join(GERMAN.get(word, word) for word in text.split())


def intents(language):
    splits = ["train", "train", "train", "train", "dev", "test"]
    sentences = []
    for label, templates in TEMPLATES.items():
        for number, (template, split) in enumerate(zip(templates, splits, strict=True)):
            for place in PLACES:
                text = template.format(place)
                if language == "de":
                    text, split = german(text), "test"
                sentences.append(LabelledText(f"{label}-{number}-{place}", text, label, f"{label}-{number}", split))
    if language == "de":
        sentences.append(LabelledText("music", "spiele musik", "Music", "m", "test"))
    return sentences


def write_tasks(run):
    with Stage(run.tasks, "tasks", {"made": "up"}).write() as output:
        record = {"intents": {}, "retrieval": {}}
        for language in ("en", "de"):
            save_labelled(output.folder, "intents", language, intents(language))
            record["intents"][language] = {"fingerprint": f"intents-{language}"}
        rng = np.random.default_rng(0)
        words = sorted(GERMAN)
        texts = {" ".join(rng.choice(words, 5)) for _ in range(400)}
        pairs = [RetrievalPair(f"k{number}", text, german(text)) for number, text in enumerate(sorted(texts)[:250])]
        save_retrieval(output.folder, "de", pairs)
        record["retrieval"]["de"] = {"fingerprint": "retrieval-de"}
        write_json(output.folder / TASKS_RECORD, record)


def write_vocabulary(run):
    lines = [sentence.text for language in ("en", "de") for sentence in intents(language)]
    vocabulary = train_vocabulary(lines, VocabularySpec(size=380, threads=1))
    with Stage(run.vocabulary, "vocabulary", {"made": "up"}).write() as output:
        (output.folder / MODEL_FILE).write_bytes(vocabulary.serialized_model)
    return vocabulary


def write_checkpoint(run, recipe, vocabulary, fingerprint=None):
    model = PretrainingModel(recipe.model, vocabulary.size, 2)
    model.initialise(3)
    folder = run.train / "checkpoints" / "step-00000001"
    folder.mkdir(parents=True)
    description = ModelDescription(
        recipe.model.model_dump(mode="json"), vocabulary.size, fingerprint or vocabulary.fingerprint, ("en", "de"), 1, "fp32", "made-up"
    )
    write_model_weights(folder, model.state_dict(), description)
    files = {path.name: {"size_bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in folder.iterdir()}
    write_json(folder / "complete.json", {"step": 1, "files": files})
    Stage(run.train, "train", {"made": "up"}).finish_in_place({"steps": 1}, 0.0, 0)


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path, recipe_file):
    folder = RunFolder(tmp_path / "run")
    folder.root.mkdir()
    write_tasks(folder)
    vocabulary = write_vocabulary(folder)
    write_checkpoint(folder, load_config(Recipe, recipe_file), vocabulary)
    with Stage(folder.corpus, "corpus", {"made": "up"}).write() as output:
        pairs = [SentencePair(source, source, target, "en", "de", "made up") for source, target in GERMAN.items()]
        write_pairs(output.folder, "en_de", pairs)
    return folder


def start(script, recipe_file, run, monkeypatch, *extra):
    arguments = [script, "--recipe", str(recipe_file), "--run-dir", str(run.root), *extra]
    monkeypatch.setattr(sys, "argv", arguments)
    try:
        runpy.run_path(str(PIPELINES / script), run_name="__main__")
    except SystemExit as stopped:
        return stopped.code
    return 0


def test_zero_shot_scores_every_system_in_every_language(run, recipe_file, monkeypatch, capsys):
    assert start("zero_shot.py", recipe_file, run, monkeypatch) == 0
    scores = json.loads((run.zero_shot / "scores.json").read_text(encoding="utf-8"))
    assert scores["unit"] == "percent"
    assert scores["intents"]["labels"] == 3
    for language, sentences in (("en", 12), ("de", 72)):
        entry = scores["intents"]["languages"][language]
        assert entry["sentences"] == sentences
        assert set(entry["systems"]) == {"probe", "finetuned", "character_floor", "random_encoder", "chance"}
        for system in entry["systems"].values():
            assert 0 <= system["interval"][0] <= system["accuracy"] <= system["interval"][1] <= 100
    assert scores["intents"]["languages"]["de"]["unanswerable"] == {"Music": 1}
    assert scores["intents"]["languages"]["en"]["systems"]["character_floor"]["accuracy"] > 80
    assert scores["intents"]["languages"]["de"]["systems"]["chance"]["accuracy"] == pytest.approx(33.333)
    retrieval = scores["retrieval"]["languages"]["de"]
    assert retrieval["pool"] == 250
    assert retrieval["systems"]["encoder"]["top1_200"]["blocks"] == 1
    assert retrieval["systems"]["encoder"]["top1_2000"] is None
    assert scores["retrieval"]["left_out"]["top1_2000"] == {"de": "pool of 250"}
    assert scores["summary"]["intents.probe"] == scores["intents"]["languages"]["de"]["systems"]["probe"]["accuracy"]
    assert scores["summary"]["retrieval.top1_2000"] is None
    assert scores["provenance"]["evaluation_sets"]["intents"] == {"en": "intents-en", "de": "intents-de"}
    assert scores["provenance"]["checkpoint"] == "train/checkpoints/step-00000001"
    predictions = pq.read_table(run.zero_shot / "predictions" / "de.parquet").to_pydict()
    right = np.mean([guess == label for guess, label in zip(predictions["probe:2"], predictions["label"], strict=True)])
    assert 100 * right == pytest.approx(scores["intents"]["languages"]["de"]["systems"]["probe"]["seeds"]["2"]["accuracy"], abs=1e-3)

    before = (run.zero_shot / "scores.json").read_bytes()
    capsys.readouterr()
    assert start("zero_shot.py", recipe_file, run, monkeypatch) == 0
    assert "already done" in capsys.readouterr().out
    assert start("zero_shot.py", recipe_file, run, monkeypatch, "--set", "evaluation.bootstrap_samples=101") == 0
    again = json.loads((run.zero_shot / "scores.json").read_text(encoding="utf-8"))
    assert again["summary"] == json.loads(before)["summary"]  # the same sentences, seeds and weights: the same scores


def test_random_weights_trained_for_nothing_equal_the_random_twin(run, recipe_file, monkeypatch):
    """The checkpoint is itself a random encoder, so that the probe must gain nothing over its floor by design."""
    assert start("zero_shot.py", recipe_file, run, monkeypatch, "--set", "evaluation.seeds=[3]") == 0
    scores = json.loads((run.zero_shot / "scores.json").read_text(encoding="utf-8"))
    entry = scores["intents"]["languages"]["de"]
    assert entry["differences"]["probe-random_encoder"] == {"gain": 0.0, "interval": [0.0, 0.0]}
    systems = scores["retrieval"]["languages"]["de"]["systems"]
    assert systems["encoder"] == systems["random_encoder"]


def test_code_switching_scores_by_rate_and_cmi(run, recipe_file, monkeypatch):
    assert start("code_switching.py", recipe_file, run, monkeypatch) == 0
    scores = json.loads((run.code_switching / "scores.json").read_text(encoding="utf-8"))
    half, full = scores["languages"]["de"]["0.5"], scores["languages"]["de"]["1"]
    assert half["sentences"] == full["sentences"] == 12
    assert 0 < half["realised_share"] < full["realised_share"] <= 100
    assert full["realised_share"] == scores["lexicon"]["de"]["coverage"]
    # The other half is for training, and words of both ("living room") are in neither.
    assert 0 < scores["lexicon"]["de"]["entries"] < len(GERMAN)
    assert set(full["systems"]) == {"probe", "character_floor"}
    assert scores["training"] is None
    assert sum(bucket["sentences"] for bucket in scores["cmi_buckets"]) == 24
    for system in full["systems"].values():
        assert system["interval"][0] <= system["accuracy"] <= system["interval"][1]
    lines = (run.code_switching / "sets" / "de-1.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 12
    assert any("wetter" in json.loads(line)["text"] for line in lines)


def test_code_switched_training_is_scored_beside_plain(run, recipe_file, monkeypatch):
    option = ("--set", "evaluation.code_switched_training={rate: 1.0, copies: 2}")
    assert start("zero_shot.py", recipe_file, run, monkeypatch, *option) == 0
    scores = json.loads((run.zero_shot / "scores.json").read_text(encoding="utf-8"))
    systems = scores["intents"]["languages"]["de"]["systems"]
    switched = {"code_switched_training", "code_switched_finetuning", "code_switched_character_floor"}
    assert switched < set(systems)
    assert scores["summary"]["intents.code_switched_training"] == systems["code_switched_training"]["accuracy"]
    assert systems["code_switched_training"] != systems["probe"]
    record = scores["intents"]["code_switched_training"]
    assert record["realised_share"] == record["lexicon"]["de"]["coverage"] > 0
    assert start("code_switching.py", recipe_file, run, monkeypatch, *option) == 0
    again = json.loads((run.code_switching / "scores.json").read_text(encoding="utf-8"))
    assert again["training"] == record
    assert again["lexicon"]["de"]["entries"] + record["lexicon"]["de"]["entries"] + record["lexicon"]["de"]["left_out"] == len(GERMAN)
    cell = again["languages"]["de"]["1"]
    assert set(cell["systems"]) == {"probe", "code_switched_training", "character_floor", "code_switched_character_floor"}
    assert set(cell["differences"]) == {"probe-character_floor", "code_switched_training-code_switched_character_floor"}


def test_dev_scores_read_no_test_sentence(run, recipe_file):
    recipe = load_config(Recipe, recipe_file, ["evaluation.dev_languages=[de]", "evaluation.mean_languages=[]"])
    texts = {language: load_labelled(run.tasks, "intents", language) for language in ("en", "de")}
    for language, own in texts.items():  # of German some are dev; of both every test sentence goes
        dev = [replace(text, split="dev") if language == "de" else text for text in own]
        save_labelled(run.tasks, "intents", language, [text for text in dev if text.split != "test"])
    save_retrieval(run.tasks, "de", load_retrieval(run.tasks, "de")[:50], dev=True)
    (run.tasks / "retrieval" / "de.jsonl").unlink()
    scores = dev_scores(recipe, run)
    assert set(scores) == {"probe", "retrieval"}
    assert scores["probe"]["mean"] == scores["probe"]["de"] > 0
    assert 0 <= scores["retrieval"]["mean"] <= 100
    with pytest.raises(UserError, match="names no evaluation"):
        dev_scores(load_config(Recipe, recipe_file), run)


def failure(script, recipe_file, run, monkeypatch, capsys, *extra):
    assert start(script, recipe_file, run, monkeypatch, *extra) == 2
    return capsys.readouterr().err


def test_mistakes_are_one_sentence(run, recipe_file, monkeypatch, capsys):
    def error(*extra, script="zero_shot.py"):
        message = failure(script, recipe_file, run, monkeypatch, capsys, *extra)
        return message[message.index("error:") :]

    assert "mean_languages asks for fr" in error("--set", "evaluation.mean_languages=[fr]")
    assert "layers 0 (embeddings) to 1 (final)" in error("--set", "evaluation.layers=[4]")
    assert "no tasks section" in error("--set", "tasks=null")
    assert "its width is 32, the recipe's model.width is 64" in error("--set", "model.width=64")
    assert "no pairs en_fr; there are en_de" in error("--set", "evaluation.code_switching_languages=[fr]", script="code_switching.py")
    weights = run.train / "checkpoints" / "step-00000001" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert "no checkpoint here can be used" in error()


def test_checkpoint_of_another_vocabulary_is_named(run, recipe_file, monkeypatch, capsys):
    vocabulary = Vocabulary.load(run.vocabulary)
    other = run.train / "checkpoints" / "step-00000001"
    for path in other.iterdir():
        path.unlink()
    other.rmdir()
    write_checkpoint(run, load_config(Recipe, recipe_file), vocabulary, fingerprint="0123456789abcdef")
    message = failure("zero_shot.py", recipe_file, run, monkeypatch, capsys)
    assert "0123456789abcdef" in message
    assert vocabulary.fingerprint in message

"""`export_hf.py` as a user runs it: a folder that loads in a fresh process, off the network, and says what our model says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.pipelines.scripts import call
from xlm.config.model import ModelConfig
from xlm.interop.self_check import TEXTS
from xlm.model.pretraining import PretrainingModel
from xlm.training.weights import ModelDescription, load_model_weights, write_model_weights
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

ROOT = Path(__file__).parents[2]
LANGUAGES = ("de", "en", "zh-Hans")
SIZES = {"width": 24, "layers": 3, "heads": 3, "feed_forward": 96, "max_positions": 64}
POST = {**SIZES, "norm_position": "post"}
LOCAL = {"positions": "rotary", "activation": "geglu", "biases": False, "embedding_norm": True, "local_window": 8, "global_every": 2}
PAIRED = {"language_model_head": False, "discriminator_head": True}
GENERATOR = {"width": 12, "layers": 2, "heads": 2, "feed_forward": 20}
MODELS = {
    "xlm-roberta": POST,
    "bert": {**POST, "token_types": 2, "sentence_head": True},
    "megatron-bert": {**SIZES, "embedding_scale": 16.0},
    "modernbert": {**SIZES, **LOCAL},
    "albert": {**POST, "embedding_width": 10, "layer_groups": 1},
    "xlm": {**POST, "head_transform": False, "language_embeddings": True},
}
# What a stranger does, who has this folder and transformers.
STRANGER = """
import json, sys, torch, transformers
from transformers import AutoModelForMaskedLM, AutoTokenizer
texts, output, said = json.loads(sys.argv[1]), sys.argv[2], {}
for folder in sys.argv[3:]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer.split_special_tokens = False
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    if model.config.model_type == "xlm":
        batch["langs"] = torch.full_like(batch["input_ids"], model.config.lang2id["en"])
    with torch.no_grad():
        logits = model(**batch).logits
    if model.config.model_type == "xlm-roberta":
        pipeline = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=3)
        said["filled"] = [one["token"] for one in pipeline("All human beings<mask>")]
    real = batch["attention_mask"].bool()
    said[folder] = {"ids": batch["input_ids"][real], "logits": logits[real], "mask": tokenizer.mask_token_id}
torch.save(said, output)
"""


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary([text for text in TEXTS for _ in range(4)], VocabularySpec(size=480))


def write_model(folder, vocabulary, values):
    """Write a model with weights of its own everywhere, as a checkpoint holds it."""
    folder.mkdir(parents=True)
    vocabulary.save(folder, VocabularySpec(size=480))
    config = ModelConfig(**values)
    model = PretrainingModel(config, vocabulary.size, len(LANGUAGES)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    description = (config.model_dump(mode="json"), vocabulary.size, vocabulary.fingerprint, LANGUAGES, 7, "fp32", "0123456789abcdef")
    write_model_weights(folder, model.state_dict(), ModelDescription(*description))
    return model


def our_logits(model, vocabulary, texts):
    ids, lengths = [], []
    for text in texts:
        before, *after = text.split("<mask>")
        pieces = [vocabulary.bos_id, *vocabulary.encode(before).tolist()]
        if after:
            pieces += [vocabulary.mask_id, *vocabulary.encode(after[0]).tolist()]
        ids += [*pieces, vocabulary.eos_id]
        lengths.append(len(pieces) + 1)
    languages = torch.full((len(ids),), LANGUAGES.index("en")) if model.config.language_embeddings else None
    positions = torch.cat([torch.arange(length) for length in lengths])
    with torch.no_grad():
        states = model.encoder(torch.tensor(ids), positions, torch.tensor([0, *lengths]).cumsum(0).int(), language_ids=languages)
        return torch.tensor(ids), model.logits(states)


def as_a_stranger(folders, texts, output):
    """Return what one fresh process says of all folders; importing transformers takes most of its time."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-c", STRANGER, json.dumps(texts), str(output), *map(str, folders)]
    subprocess.run(command, check=True, env=environment, cwd=output.parent, capture_output=True)
    return torch.load(output)


def test_the_folders_say_what_our_models_say(tmp_path, vocabulary, capsys):
    models, folders = {}, {family: tmp_path / family / "out" for family in MODELS}
    for family, out in folders.items():
        models[family] = write_model(tmp_path / family / "model", vocabulary, MODELS[family])
        assert call("export_hf.py", "--checkpoint", tmp_path / family / "model", out) == 0
        assert f"({family})" in capsys.readouterr().out
        card = (out / "README.md").read_text(encoding="utf-8")
        assert all(part in card for part in (vocabulary.fingerprint, "0123456789abcdef", "zh-Hans", "step | 7"))
    texts = [text[:30] for text in TEXTS] + ["All human beings<mask>", "人人<mask>"]
    said = as_a_stranger(folders.values(), texts, tmp_path / "said.pt")
    for family, out in folders.items():
        ids, logits = our_logits(models[family], vocabulary, texts)
        assert said[str(out)]["mask"] == vocabulary.mask_id
        assert torch.equal(said[str(out)]["ids"], ids)
        assert (ids == vocabulary.mask_id).sum() == 2
        worst = float((said[str(out)]["logits"] - logits).abs().max())
        print(f"{family}: worst difference {worst:.1e}")
        assert worst <= 1e-5, family
        if family == "xlm-roberta":
            at_mask = logits[(ids == vocabulary.mask_id).nonzero()[0, 0]]
            assert said["filled"] == at_mask.topk(3).indices.tolist()


def test_a_model_with_a_generator_is_two_folders(tmp_path, vocabulary, capsys):
    values = {**POST, "embedding_width": 10, **PAIRED, "generator": GENERATOR}
    write_model(tmp_path / "model", vocabulary, values)
    assert call("export_hf.py", "--checkpoint", tmp_path / "model", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "discriminator as ElectraForPreTraining" in said
    assert "generator as ElectraForMaskedLM" in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["discriminator", "generator"]
    assert call("import_hf.py", tmp_path / "out" / "discriminator", tmp_path / "back", "--generator", tmp_path / "out" / "generator") == 0
    back = json.loads((tmp_path / "back" / "model.json").read_text(encoding="utf-8"))["config"]
    assert back["generator"] == GENERATOR
    load_model_weights(tmp_path / "back")
    capsys.readouterr()
    for first, second in (("generator", "generator"), ("discriminator", "discriminator"), ("generator", "discriminator")):
        halves = tmp_path / "out" / first, tmp_path / "out" / second
        assert call("import_hf.py", halves[0], tmp_path / "wrong", "--generator", halves[1]) == 2
        said = capsys.readouterr().err
        assert str(halves[0]) in said
        assert str(halves[1]) in said
        assert "trained by a generator" in said
        assert not (tmp_path / "wrong").exists()


def test_nothing_is_written_over_and_nothing_half_is_left(tmp_path, vocabulary, capsys):
    write_model(tmp_path / "model", vocabulary, MODELS["xlm-roberta"])
    out = tmp_path / "out"
    assert call("export_hf.py", "--checkpoint", tmp_path / "model", "--family", "modernbert", out) == 2
    assert "modernbert cannot hold this model: its activation is gelu" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    out.mkdir()
    assert call("export_hf.py", "--checkpoint", tmp_path / "model", out) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--family", "xlm-robert"], "did you mean 'xlm-roberta'?"),
        (["--vocabulary", "other"], "the vocabulary at hand is"),
    ],
)
def test_mistakes_are_sentences(options, sentence, tmp_path, vocabulary, capsys, monkeypatch):
    write_model(tmp_path / "model", vocabulary, MODELS["xlm-roberta"])
    monkeypatch.chdir(tmp_path)
    other = train_vocabulary(list(TEXTS) * 4, VocabularySpec(size=400))
    (tmp_path / "other").mkdir()
    other.save(tmp_path / "other", VocabularySpec(size=400))
    assert call("export_hf.py", "--checkpoint", "model", *options, "out") == 2
    assert sentence in capsys.readouterr().err


def test_a_checkpoint_near_the_root_may_lack_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Path, "resolve", lambda _: Path("/models"))
    assert call("export_hf.py", "--no-check", "--checkpoint", tmp_path / "nowhere", tmp_path / "out") == 2
    assert "there is no vocabulary beside this checkpoint" in capsys.readouterr().err


def test_what_no_family_can_hold_is_said_for_each(tmp_path, vocabulary, capsys):
    write_model(tmp_path / "model", vocabulary, {**SIZES, "positions": "rotary"})
    assert call("export_hf.py", "--checkpoint", tmp_path / "model", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "xlm-roberta: its positions is rotary" in said
    assert "modernbert: its activation is gelu" in said

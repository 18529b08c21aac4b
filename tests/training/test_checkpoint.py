import json
import os
from types import SimpleNamespace

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, VOCABULARY

import xlm.training.checkpoint as checkpoint
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.checkpoint import (
    checkpoint_step,
    complete_checkpoints,
    latest_checkpoint,
    load_model_weights,
    missing_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)
from xlm.training.distributed import Process
from xlm.training.weights import ModelDescription

ONE = Process(0, 1, 0, 1)


class OneRankEngine:
    """What `save_checkpoint` asks of an engine, without DeepSpeed (the real one is in the integration tests)."""

    stage, is_bf16 = 2, False

    def __init__(self):
        self.model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES), seed=1)
        self.objective = SimpleNamespace(pairs=SimpleNamespace(state=dict))  # neither queue nor slow encoder
        self.forgets = None

    def save(self, folder):
        for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
            if name != self.forgets:
                (folder / name).write_bytes(os.urandom(100))

    def full_weights(self):
        return ((name, parameter.detach()) for name, parameter in self.model.named_parameters())


def save(engine, train, step, keep_last=10):
    description = ModelDescription(MODEL.model_dump(mode="json"), VOCABULARY, "voc", LANGUAGES, step, "fp32", "recipe")
    return save_checkpoint(engine, train, ONE, description, {"step": step}, keep_last)


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_saved_checkpoint_is_whole_and_its_weights_load(tmp_path):
    engine = OneRankEngine()
    path = save(engine, tmp_path, 12)
    assert path.name == "step-00000012"
    assert checkpoint_step(path) == 12
    verify_checkpoint(path)
    assert latest_checkpoint(tmp_path) == path
    loaded = load_model_weights(path, expect=MODEL, vocabulary_fingerprint="voc")
    assert loaded.step == 12
    assert all(torch.equal(loaded.state_dict[name], parameter) for name, parameter in engine.model.named_parameters())
    listed = set(json.loads((path / "complete.json").read_text())["files"])
    assert listed == {path.name for path in path.iterdir()} - {"complete.json"}


@pytest.mark.parametrize("name", ["model.safetensors", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "loop.json"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path, capsys, name):
    engine = OneRankEngine()
    good = save(engine, tmp_path, 1)
    damage(save(engine, tmp_path, 2) / name)
    assert latest_checkpoint(tmp_path) == good
    assert f"step-00000002/{name}: this file of a checkpoint is damaged" in capsys.readouterr().err


def test_why_the_last_checkpoint_cannot_be_read_is_a_sentence(tmp_path):
    path = save(OneRankEngine(), tmp_path, 7)
    assert missing_checkpoint(tmp_path, 7) is None
    assert "step-00000008: this checkpoint is missing" in missing_checkpoint(tmp_path, 8)
    damage(path / "loop.json")
    assert "loop.json: this file of a checkpoint is damaged" in missing_checkpoint(tmp_path, 7)


def test_truncated_missing_and_unlisted_files_are_named(tmp_path):
    engine = OneRankEngine()
    path = save(engine, tmp_path, 1)
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"damaged .* bytes instead of"):
        verify_checkpoint(path)
    weights.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors: this file of a checkpoint is missing"):
        verify_checkpoint(path)
    (path / "complete.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="no readable list"):
        verify_checkpoint(path)
    assert latest_checkpoint(tmp_path) is None


def test_a_rank_that_did_not_write_leaves_no_checkpoint(tmp_path):
    engine = OneRankEngine()
    good = save(engine, tmp_path, 1)
    engine.forgets = "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    with pytest.raises(RuntimeError, match="was not written"):
        save(engine, tmp_path, 2)
    assert complete_checkpoints(tmp_path) == [good]
    engine.forgets = None
    save(engine, tmp_path, 3)
    assert not list((tmp_path / "checkpoints").glob("*.partial"))


def test_a_kill_before_the_rename_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    engine = OneRankEngine()
    good = save(engine, tmp_path, 1)

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(good), "rename", killed)
        with pytest.raises(Killed):
            save(engine, tmp_path, 2)
    assert (tmp_path / "checkpoints" / "step-00000002.partial" / "complete.json").exists()
    assert latest_checkpoint(tmp_path) == good


def test_retention_keeps_the_newest_and_never_a_damaged_one_in_place_of_a_good_one(tmp_path):
    engine = OneRankEngine()
    for step in (1, 2, 3, 4):
        save(engine, tmp_path, step, keep_last=2)
    assert [checkpoint_step(path) for path in complete_checkpoints(tmp_path)] == [3, 4]
    damage(tmp_path / "checkpoints" / "step-00000004" / "model.safetensors")
    # Training went back to step 3; its next save is older than the damaged one.
    rewritten = save(engine, tmp_path, 3, keep_last=1)
    assert complete_checkpoints(tmp_path) == [rewritten]
    verify_checkpoint(rewritten)


def test_a_folder_that_is_no_checkpoint(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    with pytest.raises(UserError, match="named like step-00000100"):
        checkpoint_step(tmp_path / "step-3")
    assert checkpoint.complete_checkpoints(tmp_path) == []

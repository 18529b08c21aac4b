import errno
import json

import pytest
import torch
from made_up_saves import STATE, OneRankEngine, damage, save, without_deepspeed
from made_up_steps import MODEL

import xlm.training.checkpoint_files as checkpoint_files
from xlm.errors import UserError
from xlm.training.checkpoint import (
    checkpoint_step,
    complete_checkpoints,
    latest_checkpoint,
    load_model_weights,
    missing_checkpoint,
    verify_checkpoint,
)


@pytest.fixture(autouse=True)
def _without_deepspeed(monkeypatch):
    without_deepspeed(monkeypatch)


def test_a_saved_checkpoint_is_whole_and_its_weights_load(tmp_path):
    engine = OneRankEngine()
    path = save(engine, tmp_path, 12)
    assert path.name == "step-00000012"
    assert checkpoint_step(path) == 12
    verify_checkpoint(path)
    assert latest_checkpoint(tmp_path) == path
    loaded = load_model_weights(path, expect=MODEL, vocabulary_fingerprint="voc")
    assert loaded.step == 12
    assert all(torch.equal(loaded.state_dict[name], tensor) for name, tensor in engine.weights.items())
    listed = set(json.loads((path / "complete.json").read_text())["files"])
    assert listed == {path.name for path in path.iterdir()} - {"complete.json"}


@pytest.mark.parametrize("name", ["model.safetensors", STATE, "loop.json"])
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


def test_where_no_checkpoint_is_whole_nothing_starts_anew(tmp_path, capsys):
    for step in (1, 2):
        damage(save(OneRankEngine(), tmp_path, step) / "loop.json")
    with pytest.raises(UserError, match="no checkpoint here can be used"):
        latest_checkpoint(tmp_path)
    assert capsys.readouterr().err.count("It is skipped.") == 2
    assert len(complete_checkpoints(tmp_path)) == 2


def test_a_file_that_the_disk_does_not_give_back_is_skipped_too(tmp_path, capsys, monkeypatch):
    engine = OneRankEngine()
    good, failing = save(engine, tmp_path, 1), save(engine, tmp_path, 2) / STATE
    plain = checkpoint_files.file_sha256

    def read(path):
        if path == failing:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return plain(path)

    monkeypatch.setattr(checkpoint_files, "file_sha256", read)
    assert latest_checkpoint(tmp_path) == good
    assert f"{failing}: this file of a checkpoint cannot be read (input/output error). It is skipped." in capsys.readouterr().err


def test_a_folder_that_is_no_checkpoint(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    with pytest.raises(UserError, match="named like step-00000100"):
        checkpoint_step(tmp_path / "step-3")
    assert complete_checkpoints(tmp_path) == []

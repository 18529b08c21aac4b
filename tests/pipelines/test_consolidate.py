import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.pipelines.scripts import call
from xlm.runs.fingerprint import file_sha256


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "step-00000003"
    folder.mkdir()
    save_file({"weight": torch.arange(6.0).view(2, 3)}, folder / "model.safetensors")
    (folder / "model.json").write_text(json.dumps({"step": 3, "elements": 6}), encoding="utf-8")
    files = {path.name: {"size_bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in folder.iterdir()}
    (folder / "complete.json").write_text(json.dumps({"files": files}), encoding="utf-8")
    return folder


def test_what_is_there_is_replaced_only_when_asked_and_only_if_it_is_of_this_script(tmp_path, checkpoint, capsys):
    out = tmp_path / "out"
    assert call("consolidate.py", checkpoint, out) == 0
    assert "step 3, 6 numbers in 1 tensors" in capsys.readouterr().out
    assert call("consolidate.py", checkpoint, out) == 2
    assert "exists already and is not written over" in capsys.readouterr().err
    (out / "model.safetensors").write_bytes(b"old")
    assert call("consolidate.py", checkpoint, out, "--force") == 0
    assert load_file(out / "model.safetensors")["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    assert call("consolidate.py", checkpoint, out, "--force") == 2
    assert "it holds 'notes.txt', which was not written here" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"out", checkpoint.name}


def test_nothing_is_left_of_a_checkpoint_that_is_damaged(tmp_path, checkpoint, capsys):
    (checkpoint / "model.json").write_text("{", encoding="utf-8")
    assert call("consolidate.py", checkpoint, tmp_path / "out") == 2
    assert "model.json: this file of a checkpoint is damaged" in capsys.readouterr().err
    assert call("consolidate.py", checkpoint, tmp_path / "out", "--with-optimizer", "--force") == 2
    assert not list(tmp_path.glob("*out*"))


def test_an_optimizer_that_is_not_there_is_a_sentence(tmp_path, checkpoint, capsys):
    assert call("consolidate.py", checkpoint, tmp_path / "out", "--with-optimizer") == 2
    assert "this checkpoint has no optimizer state" in capsys.readouterr().err

import hashlib
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, VOCABULARY
from safetensors.torch import load_file, safe_open, save_file

from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.consolidate import consolidate
from xlm.training.fragments import STATE, Fragment, StateHeader, state_file, tensor_name
from xlm.training.tensor_file import TensorPlace, write_tensor_file
from xlm.training.weights import ModelDescription, load_model_weights, write_model_weights

SCALARS = {"step": ("F32", 7.0)}
ROOT = Path(__file__).parents[2]


def write_checkpoint(folder, weights, moments, ranks, *, shapes=None, description=None):
    """A checkpoint of ``ranks`` ranks that hold equal runs of every parameter."""
    folder.mkdir(parents=True)
    about = ModelDescription(MODEL.model_dump(mode="json"), VOCABULARY, "voc", LANGUAGES, 7, "fp32", "recipe")
    write_model_weights(folder, weights, about)
    for rank in range(ranks):
        fragments, parts = [], {}
        for name, tensor in weights.items():
            bounds = [tensor.numel() * part // ranks for part in range(ranks + 1)]
            start, stop = list(pairwise(bounds))[rank]
            if start < stop:
                fragments.append(Fragment(name, start, stop, tuple((shapes or {}).get(name, tensor.shape)), tuple(moments), SCALARS))
                parts |= {tensor_name(key, name): of[name].flatten()[start:stop].contiguous() for key, of in moments.items()}
        header = StateHeader(tuple(fragments), {"global_steps": 7}, None, 3, rank, ranks)
        places = {name: TensorPlace("F32", tuple(part.shape)) for name, part in parts.items()}
        contents = (part.view(torch.uint8).numpy().data for part in parts.values())
        write_tensor_file(folder / state_file(rank, ranks), places, contents, {STATE: header.to_json()})
    vouch_for(folder)
    return folder


def vouch_for(folder):
    """List the files of a folder as a complete checkpoint does."""
    (folder / "complete.json").unlink(missing_ok=True)
    files = {path.name: {"size_bytes": path.stat().st_size, "sha256": of(path)} for path in folder.iterdir()}
    (folder / "complete.json").write_text(json.dumps({"step": 7, "files": files}), encoding="utf-8")


def of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def weights():
    model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES), seed=1)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.fixture
def moments(weights):
    return {
        "exp_avg": {name: tensor + 1 for name, tensor in weights.items()},
        "exp_avg_sq": {name: tensor * 2 for name, tensor in weights.items()},
    }


@pytest.fixture
def checkpoint(tmp_path, weights, moments):
    return write_checkpoint(tmp_path / "checkpoints" / "step-00000007", weights, moments, 3)


def test_everything_by_name_and_in_the_form_that_others_read(tmp_path, checkpoint, weights, moments):
    out = tmp_path / "out"
    out.mkdir()
    written = consolidate(checkpoint, out, with_optimizer=True)
    assert (written.step, written.parameters, written.moments, written.world_size) == (7, len(weights), ("exp_avg", "exp_avg_sq"), 3)
    loaded = load_model_weights(out, expect=MODEL, vocabulary_fingerprint="voc").state_dict
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights.items())
    optimizer = load_file(out / "optimizer.safetensors")
    wanted = {f"{key}/{name}": tensor for key, of_key in moments.items() for name, tensor in of_key.items()}
    assert set(optimizer) == set(wanted)
    assert all(torch.equal(optimizer[name], tensor) for name, tensor in wanted.items())
    with safe_open(out / "optimizer.safetensors", "pt") as opened:
        about = json.loads(opened.metadata()["state"])
    assert about["scalars"] == {name: {"step": 7.0} for name in weights}
    assert about["counters"] == {"global_steps": 7}


def test_weights_alone_need_nothing_of_the_optimizer(tmp_path, checkpoint, weights):
    for path in checkpoint.glob("optimizer-*"):
        path.unlink()
    out = tmp_path / "out"
    out.mkdir()
    assert consolidate(checkpoint, out, with_optimizer=False).elements == sum(tensor.numel() for tensor in weights.values())
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "model.json"}


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def with_a_tensor_too_many(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"strange": torch.zeros(3)}, folder / "model.safetensors")
    vouch_for(folder)


def with_another_shape(folder):
    weights = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in weights.items() if tensor.dim() == 2)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    write_checkpoint(folder, weights, {}, 2, shapes={name: (weights[name].numel(),)})


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: flip(folder / "model.safetensors"), "model.safetensors: this file of a checkpoint is damaged"),
        (lambda folder: flip(folder / state_file(2, 3)), "00002-of-00003.safetensors: this file of a checkpoint is damaged"),
        (lambda folder: (folder / state_file(1, 3)).unlink(), "00001-of-00003.safetensors: this file of a checkpoint is missing"),
        (lambda folder: (folder / "complete.json").unlink(), "this is not a complete checkpoint .* pass a folder like"),
        (with_a_tensor_too_many, "numbers where .* were written"),
        (with_another_shape, "weights and optimizer state do not agree on"),
    ],
)
def test_what_is_not_whole_is_a_sentence(tmp_path, checkpoint, spoil, sentence):
    spoil(checkpoint)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=sentence):
        consolidate(checkpoint, tmp_path / "out", with_optimizer=True)


GROWTH = """
import runpy, sys
from pathlib import Path
import xlm.interop.output_folder, xlm.training.consolidate, argparse

def peak():
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))

before = peak()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
print(peak() - before, *(name in sys.modules for name in ("torch", "deepspeed", "pickle")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_memory_stays_below_the_largest_tensor_and_neither_torch_nor_deepspeed_is_loaded(tmp_path):
    weights = {name: torch.full((3_000_000, 4), float(number)) for number, name in enumerate(("a", "b", "c"))}
    folder = write_checkpoint(tmp_path / "step-00000007", weights, {"exp_avg": weights}, 2)
    command = [
        sys.executable,
        "-c",
        GROWTH,
        str(ROOT / "pipelines" / "consolidate.py"),
        str(folder),
        str(tmp_path / "out"),
        "--with-optimizer",
    ]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    grown, *loaded = printed.splitlines()[-1].split()
    assert int(grown) < weights["a"].nbytes  # of 288 MB
    assert loaded == ["False", "False", "False"]
    assert torch.equal(load_file(tmp_path / "out" / "optimizer.safetensors")["exp_avg/c"], weights["c"])

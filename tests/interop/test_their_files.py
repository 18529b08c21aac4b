"""Weights in one file or in parts, safe or pickled, and folders that are refused."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from xlm.errors import UserError
from xlm.interop.their_files import read_their_config, read_their_weights, write_their_files

TENSORS = {"a.weight": torch.arange(6.0).view(2, 3), "b.weight": torch.ones(4)}


def same(found):
    return set(found) == set(TENSORS) and all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def index(folder, name, places):
    (folder / f"{name}.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")


def test_one_file_or_parts_of_either_kind(tmp_path):
    for kind in ("whole", "parts", "pickled", "pickled_parts"):
        (tmp_path / kind).mkdir()
    write_their_files(tmp_path / "whole", {"model_type": "bert"}, TENSORS)
    save_file({"a.weight": TENSORS["a.weight"]}, tmp_path / "parts" / "one.safetensors")
    save_file({"b.weight": TENSORS["b.weight"]}, tmp_path / "parts" / "two.safetensors")
    index(tmp_path / "parts", "model.safetensors", {"a.weight": "one.safetensors", "b.weight": "two.safetensors"})
    torch.save(TENSORS, tmp_path / "pickled" / "pytorch_model.bin")
    torch.save({"a.weight": TENSORS["a.weight"]}, tmp_path / "pickled_parts" / "one.bin")
    torch.save({"b.weight": TENSORS["b.weight"]}, tmp_path / "pickled_parts" / "two.bin")
    index(tmp_path / "pickled_parts", "pytorch_model.bin", {"a.weight": "one.bin", "b.weight": "two.bin"})
    assert all(same(read_their_weights(tmp_path / kind)) for kind in ("whole", "parts", "pickled", "pickled_parts"))
    assert read_their_config(tmp_path / "whole") == {"model_type": "bert"}


class Harmful:
    def __reduce__(self):
        return (print, ("run",))


def test_code_in_a_pickle_is_not_run(tmp_path, capsys):
    with (tmp_path / "pytorch_model.bin").open("wb") as stream:
        pickle.dump({"a": Harmful()}, stream)
    with pytest.raises(UserError, match="damaged, or hold more than tensors"):
        read_their_weights(tmp_path)
    assert capsys.readouterr().out == ""


def test_damage_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="there are no weights here"):
        read_their_weights(tmp_path)
    with pytest.raises(UserError, match=r"there is no config\.json here"):
        read_their_config(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="not readable as JSON"):
        read_their_config(tmp_path)
    write_their_files(tmp_path, {}, TENSORS)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-3])
    with pytest.raises(UserError, match="damaged"):
        read_their_weights(tmp_path)


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({"a.weight": "gone.safetensors"}, "this part of the weights is missing"),
        ({"a.weight": "../one.safetensors"}, "outside of its folder"),
        ({"b.weight": "one.safetensors"}, "tensor 'b.weight' is not in this part"),
        ({}, "names no tensors"),
    ],
)
def test_an_index_that_does_not_hold_is_a_sentence(tmp_path, places, sentence):
    save_file({"a.weight": TENSORS["a.weight"]}, tmp_path / "one.safetensors")
    index(tmp_path, "model.safetensors", places)
    with pytest.raises(UserError, match=sentence):
        read_their_weights(tmp_path)


@pytest.mark.parametrize("key", ["auto_map", "quantization_config"])
def test_folders_with_code_or_quantised_weights_are_refused(tmp_path, key):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", key: {"x": "y"}}), encoding="utf-8")
    with pytest.raises(UserError, match=key):
        read_their_config(tmp_path)

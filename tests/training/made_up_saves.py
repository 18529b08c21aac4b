"""Saves of one rank without DeepSpeed: an engine with a few weights, and a state of a few bytes."""

from types import SimpleNamespace

import torch
from made_up_steps import LANGUAGES, MODEL, VOCABULARY

import xlm.training.checkpoint_part as checkpoint_part
from xlm.model.pretraining import PretrainingModel
from xlm.training.distributed import Process
from xlm.training.fragments import state_file
from xlm.training.saving import save_checkpoint
from xlm.training.weights import ModelDescription

ONE = Process(0, 1, 0, 1)
STATE = state_file(0, 1)


class OneRankEngine:
    """What a `Saver` asks of an engine; the real one is in the tests with two ranks."""

    device = torch.device("cpu")

    def __init__(self, weights=None):
        if weights is None:
            model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES), seed=1)
            weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self.weights = weights
        self.moments = b"moments"
        self.objective = SimpleNamespace(pairs=SimpleNamespace(state=dict))  # neither queue nor slow encoder

    def full_weights(self):
        return ((name, tensor.clone()) for name, tensor in self.weights.items())


def without_deepspeed(monkeypatch):
    """Make the state of a rank its engine's ``moments``."""
    monkeypatch.setattr(checkpoint_part, "snapshot", lambda engine, copy: bytes(engine.moments))
    monkeypatch.setattr(
        checkpoint_part,
        "write_rank_state",
        lambda state, folder, rank, world_size: (folder / state_file(rank, world_size)).write_bytes(state),
    )


def description_at(step):
    return ModelDescription(MODEL.model_dump(mode="json"), VOCABULARY, "voc", LANGUAGES, step, "fp32", "recipe")


def save(engine, train, step, keep_last=10):
    return save_checkpoint(engine, train, ONE, description_at(step), {"step": step}, keep_last)


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

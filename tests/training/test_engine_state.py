"""What `read_state` refuses, and what it takes up, with torch's optimizer in one process."""

from types import SimpleNamespace

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, VOCABULARY
from safetensors.torch import load_file, save_file

from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training import engine_layout, engine_state
from xlm.training.engine_state import read_state, snapshot, write_rank_state
from xlm.training.weights import WEIGHTS, ModelDescription, write_model_weights


class PlainEngine:
    """Stage 0 without DeepSpeed."""

    stage, loss_scale = 0, None

    def __init__(self, seed, config=MODEL):
        model = PretrainingModel(config, VOCABULARY, len(LANGUAGES), seed=seed)
        self.objective = SimpleNamespace(model=model)
        self.wrapped_optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        self.wrapped_engine = SimpleNamespace(global_steps=0, skipped_steps=0)

    def parameters(self):
        return dict(self.objective.model.named_parameters())

    def step(self, left_out=()):
        for number, (name, parameter) in enumerate(self.parameters().items()):
            parameter.grad = None if name in left_out else torch.sin(parameter.detach() * 7 + number)
        self.wrapped_optimizer.step()
        self.wrapped_engine.global_steps += 1


def save(engine, folder):
    folder.mkdir(exist_ok=True)
    write_rank_state(snapshot(engine), folder, 0, 1)
    about = ModelDescription(MODEL.model_dump(mode="json"), VOCABULARY, "voc", LANGUAGES, 1, "fp32", "recipe")
    write_model_weights(folder, {name: parameter.detach() for name, parameter in engine.parameters().items()}, about)
    return folder


@pytest.fixture(autouse=True)
def _one_rank(monkeypatch):
    monkeypatch.setattr(engine_state.dist, "get_rank", lambda: 0)


def test_another_process_goes_on_as_this_one(tmp_path):
    one, other = PlainEngine(1), PlainEngine(2)
    left_out = {next(iter(one.parameters()))}  # never had a gradient: nothing is kept of it
    one.step(left_out)
    one.step(left_out)
    read_state(other, save(one, tmp_path / "saved"))
    assert other.wrapped_engine.global_steps == 2
    for engine in (one, other):
        engine.step()
    assert all(torch.equal(parameter, other.parameters()[name]) for name, parameter in one.parameters().items())


def test_a_copy_shares_nothing_with_the_engine(tmp_path):
    engine = PlainEngine(1)
    engine.step()
    taken = snapshot(engine)
    before = {name: tensor.clone() for name, tensor in taken.tensors.items()}
    engine.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in taken.tensors.items())
    assert before


def test_parameters_that_are_stepped_together_must_have_been_before(tmp_path, monkeypatch):
    one, other = PlainEngine(1), PlainEngine(2)
    first, second, *_ = one.parameters()
    one.step({first})
    one.step()
    flat = torch.zeros(sum(parameter.numel() for parameter in other.parameters().values()))

    def laid_out_as_at_stage_1(engine):
        offset = 0
        for name, parameter in engine.parameters().items():
            yield engine_layout.Piece(name, parameter, tuple(parameter.shape), 0, parameter.numel(), flat, offset)
            offset += parameter.numel()

    saved = save(one, tmp_path / "saved")
    monkeypatch.setattr(engine_state, "pieces", lambda engine: list(laid_out_as_at_stage_1(engine)))
    with pytest.raises(UserError, match=f"for '{second}' and .* for '{first}', which this ZeRO stage steps together"):
        read_state(other, saved)


def without_one(tensors):
    tensors.popitem()


def with_one_more(tensors):
    tensors["strange"] = torch.zeros(2)


def with_another_shape(tensors):
    name = next(name for name, tensor in tensors.items() if tensor.dim() == 2)
    tensors[name] = tensors[name].flatten()


def in_half_precision(tensors):
    name = next(iter(tensors))
    tensors[name] = tensors[name].bfloat16()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (without_one, "this checkpoint has no weights of"),
        (with_one_more, "'strange' is not part of the model"),
        (with_another_shape, "have shape .* the model needs"),
        (in_half_precision, "is BF16, weights of a checkpoint are F32"),
    ],
)
def test_weights_of_another_model_are_a_sentence_and_change_nothing(tmp_path, spoil, sentence):
    one, other = PlainEngine(1), PlainEngine(2)
    before = {name: parameter.detach().clone() for name, parameter in other.parameters().items()}
    folder = save(one, tmp_path / "saved")
    tensors = load_file(folder / WEIGHTS)
    spoil(tensors)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(UserError, match=sentence):
        read_state(other, folder)
    assert all(torch.equal(parameter, before[name]) for name, parameter in other.parameters().items())


def test_what_cannot_be_cut_is_not_left_out():
    engine = PlainEngine(1)
    engine.step()
    next(iter(engine.wrapped_optimizer.state.values()))["rows"] = torch.zeros(3)
    with pytest.raises(RuntimeError, match="the optimizer keeps 'rows'"):
        snapshot(engine)

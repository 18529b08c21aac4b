"""The slow encoder: its weights against the formula, its states against the encoder's own layers."""

import copy

import pytest
import torch
from made_up_steps import LANGUAGES, VOCABULARY, make_rows, pack

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.momentum import MomentumEncoder

SHAPE = {"width": 16, "layers": 3, "heads": 2, "feed_forward": 32, "max_positions": 16}
KINDS = {
    "pre-norm": {},
    "post-norm": {"norm_position": "post", "language_embeddings": True, "token_types": 2},
    "rotary, windows": {"positions": "rotary", "local_window": 4, "global_every": 2},
    "shared layers, factorised": {"layer_groups": 1, "embedding_width": 8},
    "sinusoidal": {"positions": "sinusoidal", "norm_position": "post"},
}


def model_of(**options):
    model = PretrainingModel(ModelConfig(**SHAPE, **options), VOCABULARY, len(LANGUAGES))
    model.initialise(5)
    return model


def moved(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("layer", [0, 1, 2, 3, None])
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_the_layer(kind, layer):
    model = model_of(**KINDS[kind])
    batch = pack(make_rows(0))
    needed = torch.tensor([0, 3, batch.tokens - 1])
    expected = model.encode_layers(batch, model.token_tables())[-1 if layer is None else layer][needed]
    torch.testing.assert_close(MomentumEncoder(model.encoder, 0.9, layer).encode(batch, needed, torch.float32), expected.detach())


def test_weights_are_an_exponential_mean():
    model = model_of()
    slow = MomentumEncoder(model.encoder, 0.8)
    expected = copy.deepcopy(model.encoder.state_dict())
    for seed in range(4):
        moved(model, seed)
        slow.follow(model.encoder)
        expected = {name: 0.8 * before + 0.2 * model.encoder.state_dict()[name] for name, before in expected.items()}
    for name, tensor in slow.state().items():
        torch.testing.assert_close(tensor, expected[name])
        assert not tensor.requires_grad


def test_small_steps_survive_where_the_model_is_trained_in_16_bits():
    """A share of a thousandth is less than half of the last bit of a bf16 number."""
    model = model_of()
    slow = MomentumEncoder(model.encoder, 0.999)
    before = {name: tensor.clone() for name, tensor in slow.state().items()}
    moved(model.bfloat16(), 0)
    slow.follow(model.encoder)
    name = "embeddings.tokens.weight"
    went = slow.state()[name] - before[name]
    way = model.encoder.state_dict()[name].float() - before[name]
    torch.testing.assert_close(went, 0.001 * way, rtol=1e-2, atol=1e-6)
    states = slow.encode(pack(make_rows(0)), torch.tensor([0]), torch.bfloat16)
    assert states.dtype == torch.bfloat16


def test_nothing_is_dropped_out():
    model = model_of(dropout=0.5)
    slow, batch, needed = MomentumEncoder(model.train().encoder, 0.9), pack(make_rows(0)), torch.arange(4)
    assert torch.equal(slow.encode(batch, needed, torch.float32), slow.encode(batch, needed, torch.float32))


def test_unread_layers_are_not_kept():
    kept = {name.split(".")[1] for name in MomentumEncoder(model_of().encoder, 0.9, 2).state() if name.startswith("blocks.")}
    assert kept == {"0", "1"}


def test_saved_weights_are_taken_up_and_those_of_another_model_refused():
    first, second = (MomentumEncoder(model_of().encoder, 0.9) for _ in range(2))
    other = model_of()
    moved(other, 0)
    first.follow(other.encoder)
    second.load({name: tensor.clone() for name, tensor in first.state().items()})
    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in first.state().items())
    with pytest.raises(UserError, match="momentum encoder is of another model"):
        second.load(MomentumEncoder(model_of().encoder, 0.9, 1).state())

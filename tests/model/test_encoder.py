"""The encoder against one written out plainly, and what its parts promise of each other."""

import pytest
import torch

from tests.model.packed import LANGUAGES, LENGTHS, TOKENS, VOCABULARY, bounds, inputs, perturb, shape
from tests.model.plain_encoder import plain_states
from xlm.errors import UserError
from xlm.model.encoder import Encoder

ROTARY_LOCAL = {"positions": "rotary", "rotary_base": 50.0, "local_window": 4, "global_every": 2, "local_rotary_base": 10.0}
KINDS = {
    "post": {"norm_position": "post", "token_types": 2},
    "pre": {},
    "pre, norms elsewhere": {"embedding_norm": True, "final_norm": "none"},
    "modern": {**ROTARY_LOCAL, "embedding_norm": True, "activation": "geglu", "biases": False},
    "albert": {"norm_position": "post", "embedding_width": 4, "layer_groups": 1, "activation": "gelu_tanh"},
    "groups": {"layers": 4, "layer_groups": 2, "embedding_norm": True},
    "factorised, normalised": {"embedding_width": 4, "embedding_norm": True},
    "sinusoidal, languages": {"positions": "sinusoidal", "language_embeddings": True, "norm_position": "post"},
    "wider than its base": {"width_scaling": {"base_width": 8, "base_heads": 2}},
}
ONE_SIDED = torch.tensor([True, False, True, False, True])


def build(**changes):
    encoder = Encoder(shape(**changes), VOCABULARY, LANGUAGES if changes.get("language_embeddings") else 0)
    return perturb(encoder)


def batch_of(encoder, lengths=LENGTHS):
    batch = inputs(lengths)
    generator = torch.Generator().manual_seed(9)
    if encoder.config.token_types:
        batch["token_type_ids"] = torch.randint(0, encoder.config.token_types, (sum(lengths),), generator=generator)
    if encoder.config.language_embeddings:
        batch["language_ids"] = torch.randint(0, LANGUAGES, (sum(lengths),), generator=generator)
    return batch


@pytest.mark.parametrize("causal", [None, ONE_SIDED], ids=["both sides", "some causal"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_what_the_plain_encoder_computes(kind, causal):
    encoder = build(**KINDS[kind])
    batch = batch_of(encoder)
    layers = encoder(**batch, causal=causal, return_layers=True)
    embedded = encoder.embeddings(batch["input_ids"], batch["position_ids"], batch.get("token_type_ids"), batch.get("language_ids"))
    expected = plain_states(encoder, embedded, batch["position_ids"], batch["cu_seqlens"], causal)
    assert len(layers) == len(expected) == encoder.config.layers + 1
    for mine, theirs in zip(layers, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)
    assert torch.equal(layers[-1], encoder(**batch, causal=causal))


@pytest.mark.parametrize("causal", [None, ONE_SIDED], ids=["both sides", "some causal"])
@pytest.mark.parametrize("kind", KINDS)
def test_encoding_only_what_is_needed_changes_neither_states_nor_gradients(kind, causal):
    encoder = build(**KINDS[kind])
    batch = batch_of(encoder)
    needed = torch.tensor([0, 1, 8, 9, 21, 22, 34])  # the first and last tokens among them
    given = torch.randn(len(needed), 16, generator=torch.Generator().manual_seed(1))
    parameters = list(encoder.parameters())
    some = encoder(**batch, causal=causal, needed=needed)
    every = encoder(**batch, causal=causal)[needed]
    torch.testing.assert_close(some, every, atol=1e-6, rtol=1e-5)
    gradients = [torch.autograd.grad(states, parameters, given) for states in (some, every)]
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-4)
    assert encoder(**batch, causal=causal, needed=needed[:0]).shape == (0, 16)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("groups", [1, 2])
def test_layers_of_a_group_are_one_block_and_gather_its_gradients(groups, norm_position):
    shared, apart = build(layers=4, layer_groups=groups, norm_position=norm_position), build(layers=4, norm_position=norm_position)
    assert len(shared.blocks) == groups
    values = {name: value for name, value in shared.state_dict().items() if not name.startswith("blocks.")}
    for layer in range(4):
        of_block = shared.blocks[layer * groups // 4].state_dict()
        values.update({f"blocks.{layer}.{name}": value for name, value in of_block.items()})
    apart.load_state_dict(values)
    batch = batch_of(shared)
    torch.testing.assert_close(shared(**batch), apart(**batch))
    given = torch.randn(TOKENS, 16, generator=torch.Generator().manual_seed(1))
    for encoder in (shared, apart):
        encoder(**batch).backward(given)
    for group in range(groups):
        members = [apart.blocks[layer] for layer in range(4) if layer * groups // 4 == group]
        for name, parameter in shared.blocks[group].named_parameters():
            expected = sum(dict(member.named_parameters())[name].grad for member in members)
            torch.testing.assert_close(parameter.grad, expected, atol=1e-4, rtol=1e-4)


def changed_by(encoder, token, causal=None):
    """Return which of 12 tokens' states move when the piece of one of them changes."""
    batch = batch_of(encoder, (12,))
    before = encoder(**batch, causal=causal)
    batch["input_ids"] = batch["input_ids"].clone()
    batch["input_ids"][token] = (batch["input_ids"][token] + 1) % VOCABULARY
    moved = (encoder(**batch, causal=causal) - before).abs().amax(-1) > 0
    return torch.nonzero(moved).ravel().tolist()


@pytest.mark.parametrize("kind", ["pre", "post", "modern"])
def test_no_token_of_a_causal_sequence_sees_what_comes_after_it(kind):
    encoder = build(**KINDS[kind])
    assert changed_by(encoder, 7, torch.tensor([True]))[0] == 7
    assert changed_by(encoder, 0, torch.tensor([True])) == list(range(12))
    assert changed_by(encoder, 7)[0] == 0


def test_local_layers_see_so_far_and_no_further():
    # The first layer is global, so all that it may tell apart is taken out of its attention.
    encoder = build(layers=3, local_window=4, global_every=10, positions="rotary")
    with torch.no_grad():
        encoder.blocks[0].attention.output.weight.zero_()
    assert changed_by(encoder, 6) == list(range(2, 11)), "two local layers reach 2 tokens each to either side"
    assert changed_by(encoder, 6, torch.tensor([True])) == list(range(6, 11))


def test_sequences_do_not_see_each_other():
    encoder = build()
    one, two = encoder(**inputs((7, 9))).split([7, 9])
    batch = inputs((7, 9))
    swapped = {
        "input_ids": torch.cat([batch["input_ids"][7:], batch["input_ids"][:7]]),
        "position_ids": torch.cat([torch.arange(9), torch.arange(7)]),
        "cu_seqlens": bounds((9, 7)),
    }
    two_again, one_again = encoder(**swapped).split([9, 7])
    torch.testing.assert_close(one, one_again)
    torch.testing.assert_close(two, two_again)


def test_nothing_comes_of_no_tokens():
    encoder = build()
    hidden = encoder(**inputs(()))
    assert hidden.shape == (0, 16)
    hidden.sum().backward()


def test_a_sequence_longer_than_the_positions_is_an_error_that_names_both():
    for positions in ("learned", "sinusoidal", "rotary"):
        encoder = build(positions=positions)
        with pytest.raises(UserError, match=r"17 positions.*max_positions 16"):
            encoder(**inputs((17,)))
        restarted = inputs((20,))
        restarted["position_ids"] = torch.arange(20) % 10
        assert encoder(**restarted).shape == (20, 16)


def test_without_a_final_norm_the_last_layer_is_the_residual_stream():
    plain, normed = build(final_norm="none"), build()
    assert plain.final_norm is None
    layers = plain(**inputs(), return_layers=True)
    with torch.no_grad():
        normed.final_norm.weight.fill_(1.0)
        normed.final_norm.bias.zero_()
    torch.testing.assert_close(normed.final_norm(layers[-1]), normed(**inputs()))


def test_dropout_acts_in_training_only_and_follows_its_key():
    encoder = build(dropout=0.2)

    def run(*key):
        encoder.dropout_key.set(*key)
        return encoder(**inputs())

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    encoder.eval()
    assert torch.equal(run(1), run(2))


def test_building_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    Encoder(shape(), VOCABULARY, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_names_of_parameters_are_those_of_saved_models():
    encoder = build(**KINDS["post"], layers=1, language_embeddings=True, embedding_width=4)
    parts = ["attention.qkv", "attention.output", "attention_norm", "feed_forward.inner", "feed_forward.output", "feed_forward_norm"]
    expected = {f"blocks.0.{part}.{kind}" for part in parts for kind in ("weight", "bias")}
    expected |= {f"embeddings.{table}.weight" for table in ("tokens", "positions", "token_types", "languages")}
    expected |= {f"{part}.{kind}" for part in ("embeddings.norm", "embedding_projection") for kind in ("weight", "bias")}
    assert set(encoder.state_dict()) == expected
    assert set(build(layers=1).state_dict()) - set(encoder.state_dict()) == {"final_norm.weight", "final_norm.bias"}

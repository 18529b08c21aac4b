"""Embeddings: what is summed, what is required, what is refused."""

import math

import pytest
import torch

from tests.model.packed import shape
from xlm.errors import UserError
from xlm.model.dropout import DropoutKey
from xlm.model.embeddings import Embeddings, sinusoidal_positions
from xlm.model.tied_table import share_table

IDS = torch.tensor([4, 7, 4])
POSITIONS = torch.tensor([0, 1, 2])


def build(language_count=0, **changes):
    embeddings = Embeddings(shape(**changes), 20, language_count, DropoutKey())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in embeddings.parameters():
            parameter.normal_(generator=generator)
    return embeddings


def test_tokens_are_scaled_and_positions_are_not():
    embeddings = build(embedding_scale=16.0)
    expected = 16.0 * embeddings.tokens.weight[IDS] + embeddings.positions.weight[POSITIONS]
    torch.testing.assert_close(embeddings(IDS, POSITIONS, None, None), expected)


def test_types_and_languages_are_added_where_the_model_has_them():
    embeddings = build(language_count=3, token_types=2, language_embeddings=True)
    types, languages = torch.tensor([0, 1, 1]), torch.tensor([2, 2, 0])
    expected = embeddings.tokens.weight[IDS] + embeddings.positions.weight[POSITIONS]
    expected = expected + embeddings.token_types.weight[types] + embeddings.languages.weight[languages]
    torch.testing.assert_close(embeddings(IDS, POSITIONS, types, languages), expected)
    zeros = embeddings(IDS, POSITIONS, torch.zeros(3).long(), languages)
    torch.testing.assert_close(embeddings(IDS, POSITIONS, None, languages), zeros)


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions_follow_their_formula(width):
    table = sinusoidal_positions(50, width)
    for position in (0, 1, 49):
        for column in range(width):
            angle = position / 10_000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert float(table[position, column]) == pytest.approx(expected, abs=1e-6)


def test_sinusoidal_positions_are_added_and_are_no_parameters():
    embeddings = build(positions="sinusoidal")
    expected = embeddings.tokens.weight[IDS] + sinusoidal_positions(16, 16)[POSITIONS]
    torch.testing.assert_close(embeddings(IDS, POSITIONS, None, None), expected)
    assert [name for name, _ in embeddings.named_parameters()] == ["tokens.weight"]
    assert list(embeddings.state_dict()) == ["tokens.weight"], "what follows from the configuration is not saved"


def test_rotary_positions_are_not_added():
    embeddings = build(positions="rotary")
    torch.testing.assert_close(embeddings(IDS, POSITIONS, None, None), embeddings.tokens.weight[IDS])


def test_a_factorised_sum_has_the_width_of_its_tables():
    embeddings = build(embedding_width=4, token_types=2)
    assert embeddings(IDS, POSITIONS, None, None).shape == (3, 4)
    assert {parameter.shape[-1] for parameter in embeddings.parameters()} == {4}


@pytest.mark.parametrize(("changes", "normalised"), [({"norm_position": "post"}, True), ({}, False), ({"embedding_norm": True}, True)])
def test_the_sum_is_normalised_where_the_model_says_so(changes, normalised):
    embeddings = build(**changes)
    assert (embeddings.norm is not None) == normalised
    if normalised:
        with torch.no_grad():
            embeddings.norm.weight.fill_(1.0)
            embeddings.norm.bias.zero_()
        embedded = embeddings(IDS, POSITIONS, None, None)
        torch.testing.assert_close(embedded.mean(-1), torch.zeros(3), atol=1e-6, rtol=0)
        torch.testing.assert_close(embedded.var(-1, unbiased=False), torch.ones(3), atol=1e-4, rtol=0)


def test_a_shared_table_stands_for_the_tokens():
    embeddings = build(token_types=1)
    lookup, _ = share_table(embeddings.tokens.weight)
    shared = embeddings(IDS, POSITIONS, None, None, lookup)
    torch.testing.assert_close(shared, embeddings(IDS, POSITIONS, None, None))
    shared.sum().backward()
    expected = torch.zeros(20, 16)
    expected[4], expected[7] = 2.0, 1.0
    torch.testing.assert_close(embeddings.tokens.weight.grad, expected)


def test_languages_must_be_given_and_must_exist():
    with pytest.raises(UserError, match="pass language_ids"):
        build(language_count=3, language_embeddings=True)(IDS, POSITIONS, None, None)
    with pytest.raises(UserError, match="no languages were given"):
        build(language_count=0, language_embeddings=True)


def test_ids_without_a_row_are_sentences():
    embeddings = build(language_count=3, token_types=2, language_embeddings=True)
    lookup, _ = share_table(embeddings.tokens.weight)
    fine = torch.zeros(3).long()
    with pytest.raises(UserError, match="piece id 20, but this model's go from 0 to 19"):
        embeddings(torch.tensor([4, 20, 4]), POSITIONS, fine, fine)
    with pytest.raises(UserError, match="piece id 20, but this model's go from 0 to 19"):
        embeddings(torch.tensor([4, 20, 4]), POSITIONS, fine, fine, lookup)
    with pytest.raises(UserError, match="language id 3, but this model's go from 0 to 2"):
        embeddings(IDS, POSITIONS, fine, torch.tensor([0, 3, 1]))
    with pytest.raises(UserError, match="language id -1, but"):
        embeddings(IDS, POSITIONS, fine, torch.tensor([0, -1, 1]))
    with pytest.raises(UserError, match="token type id 2, but this model's go from 0 to 1"):
        embeddings(IDS, POSITIONS, torch.tensor([0, 2, 1]), fine)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_without_a_row_are_a_sentence(positions):
    with pytest.raises(UserError, match=r"needs 17 positions.*max_positions 16"):
        build(positions=positions)(IDS, torch.tensor([0, 16, 2]), None, None)

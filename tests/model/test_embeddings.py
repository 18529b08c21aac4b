"""Embeddings: what is summed, what is required."""

import pytest
import torch

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.dropout import DropoutKey
from xlm.model.embeddings import Embeddings


def build(language_count=0, **changes):
    config = ModelConfig(width=8, layers=1, heads=2, feed_forward=8, max_positions=16, **changes)
    embeddings = Embeddings(config, 20, language_count, DropoutKey())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in embeddings.parameters():
            parameter.normal_(generator=generator)
    return embeddings


IDS = torch.tensor([4, 7, 4])
POSITIONS = torch.tensor([0, 1, 2])


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


def test_languages_must_be_given_and_must_exist():
    with pytest.raises(UserError, match="pass language_ids"):
        build(language_count=3, language_embeddings=True)(IDS, POSITIONS, None, None)
    with pytest.raises(UserError, match="no languages were given"):
        build(language_count=0, language_embeddings=True)


def test_post_norm_models_normalise_the_sum():
    embeddings = build(norm_position="post")
    with torch.no_grad():
        embeddings.norm.weight.fill_(1.0)
        embeddings.norm.bias.zero_()
    embedded = embeddings(IDS, POSITIONS, None, None)
    torch.testing.assert_close(embedded.mean(-1), torch.zeros(3), atol=1e-6, rtol=0)
    assert build().norm is None

from collections import Counter

import numpy as np
import pytest
import torch

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.evaluation.encode import encode_texts
from xlm.model.encoder import Encoder
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

CONFIG = ModelConfig(width=32, layers=2, heads=4, feed_forward=64, max_positions=40, initializer_range=0.3, dropout=0.1)
TEXTS = ["turn on the light in the kitchen", "open the door", "", "light", "in der küche ein", "the the the light"]


@pytest.fixture(scope="module")
def vocabulary():
    lines = ["turn on the light in the kitchen", "schalte das licht in der küche ein", "open the door", "öffne die tür"] * 5
    return train_vocabulary(lines, VocabularySpec(size=330, threads=1))


@pytest.fixture(scope="module")
def encoder(vocabulary):
    return Encoder(CONFIG, vocabulary.size, 1)


def one_by_one(encoder, vocabulary, text, layer):
    ids = torch.tensor([vocabulary.bos_id, *vocabulary.encode(text), vocabulary.eos_id], dtype=torch.int64)
    with torch.no_grad():
        layers = encoder.eval()(ids, torch.arange(len(ids)), torch.tensor([0, len(ids)], dtype=torch.int32), return_layers=True)
    inside = layers[layer][1:-1] if len(ids) > 2 else layers[layer]
    return inside.mean(dim=0).numpy()


@pytest.mark.parametrize("tokens_per_batch", [1, 20, 8192])
def test_vectors_do_not_depend_on_what_else_is_in_the_batch(encoder, vocabulary, tokens_per_batch):
    vectors = encode_texts(encoder, vocabulary, TEXTS, layers=(0, 1, -1), tokens_per_batch=tokens_per_batch)
    assert vectors.shape == (3, len(TEXTS), 32)
    for row, layer in enumerate((0, 1, -1)):
        for index, text in enumerate(TEXTS):
            np.testing.assert_allclose(vectors[row, index], one_by_one(encoder, vocabulary, text, layer), atol=2e-5)


def test_final_layer_alone_is_the_last_of_all(encoder, vocabulary):
    alone = encode_texts(encoder, vocabulary, TEXTS)
    among = encode_texts(encoder, vocabulary, TEXTS, layers=(0, 1, 2))
    np.testing.assert_allclose(alone[0], among[2], atol=1e-6)


def test_dropout_is_off_and_the_mode_is_put_back(encoder, vocabulary):
    encoder.train()
    first = encode_texts(encoder, vocabulary, TEXTS)
    second = encode_texts(encoder, vocabulary, TEXTS)
    assert encoder.training
    np.testing.assert_array_equal(first, second)
    encoder.eval()


def test_bf16_is_near_fp32(encoder, vocabulary):
    exact = encode_texts(encoder, vocabulary, TEXTS)[0]
    rounded = encode_texts(encoder, vocabulary, TEXTS, precision="bf16")[0]
    cosine = (exact * rounded).sum(axis=1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rounded, axis=1)
    assert cosine.min() > 0.99
    assert not np.array_equal(exact, rounded)


def test_cut_texts_are_counted(encoder, vocabulary):
    counts = Counter()
    encode_texts(encoder, vocabulary, ["light " * 100, "light"], counts=counts)
    assert counts == {"texts": 2, "cut": 1}


def test_language_embeddings_are_used_and_asked_for(vocabulary):
    encoder = Encoder(CONFIG.model_copy(update={"language_embeddings": True}), vocabulary.size, 2).eval()
    english = encode_texts(encoder, vocabulary, TEXTS, language=0)
    german = encode_texts(encoder, vocabulary, TEXTS, language=1)
    assert np.abs(english - german).max() > 1e-2
    with pytest.raises(UserError, match="language embeddings"):
        encode_texts(encoder, vocabulary, TEXTS)

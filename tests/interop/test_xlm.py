"""XLM: language embeddings or none, learned or sinusoidal positions."""

import pytest
from their_models import BASE_SCALE, check_gradients, check_logits, check_round_trip, twins
from transformers import XLMConfig, XLMWithLMHeadModel

from xlm.errors import UserError

POSITIONS = "transformer.position_embeddings.weight"
LANGUAGES = {"lang2id": {"en": 1, "de": 0, "sw": 2}}
NO_LANGUAGES = [{"n_langs": 1}, {"n_langs": 3, "use_lang_emb": False}]


def xlm(**changes):
    return XLMConfig(**{"vocab_size": 61, "emb_dim": 24, "n_layers": 3, "n_heads": 3, "max_position_embeddings": 17, **changes})


def with_languages(**changes):
    return twins(XLMWithLMHeadModel, xlm(n_langs=3, **changes), **LANGUAGES)


@pytest.mark.parametrize("tied", [True, False])
def test_words_are_scored_alike_with_languages(tied):
    pair = with_languages(tie_word_embeddings=tied)
    assert pair.described.facts.languages == ("de", "en", "sw")
    check_logits(pair)
    check_round_trip(pair)


@pytest.mark.parametrize("changes", NO_LANGUAGES)
def test_words_are_scored_alike_without_languages(changes):
    pair = twins(XLMWithLMHeadModel, xlm(**changes))
    assert not pair.described.config.language_embeddings
    check_logits(pair)
    check_round_trip(pair)


@pytest.mark.parametrize("changes", NO_LANGUAGES)
def test_sinusoidal_positions_are_recomputed_and_given_back(changes):
    pair = twins(XLMWithLMHeadModel, xlm(sinusoidal_embeddings=True, **changes), keep=(POSITIONS,))
    assert pair.described.config.positions == "sinusoidal"
    check_logits(pair)
    check_round_trip(pair)


def test_a_table_that_is_not_sinusoidal_is_refused():
    with pytest.raises(UserError, match=r"'transformer\.position_embeddings\.weight' is not the table of sinusoids"):
        twins(XLMWithLMHeadModel, xlm(sinusoidal_embeddings=True))


def test_languages_without_names_are_refused():
    with pytest.raises(UserError, match="n_langs 3, but lang2id names 0"):
        twins(XLMWithLMHeadModel, xlm(n_langs=3))


def test_gradients_are_the_same_with_languages():
    check_gradients(with_languages())


def test_gradients_are_the_same_without_languages():
    pair = twins(XLMWithLMHeadModel, xlm(sinusoidal_embeddings=True), keep=(POSITIONS,))
    check_gradients(pair, keep=(POSITIONS,))


@pytest.mark.parametrize("choice", ["causal", "asm"])
def test_what_we_cannot_compute_is_refused(choice):
    with pytest.raises(UserError, match=f"{choice} True"):
        twins(XLMWithLMHeadModel, xlm(), **{choice: True})


@pytest.mark.slow
def test_xlm_15_shape():
    shape = XLMConfig(vocab_size=3001, emb_dim=1024, n_layers=12, n_heads=8, n_langs=3)
    pair = twins(XLMWithLMHeadModel, shape, scale=BASE_SCALE, **LANGUAGES)
    check_logits(pair)
    check_round_trip(pair)

"""What reads hidden states, against its formulas."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.model.packed import perturb, shape
from tests.model.plain_encoder import linear, norm
from xlm.model.dropout import DropoutKey
from xlm.model.heads import DiscriminatorHead, LanguageModelHead, SentenceHead
from xlm.model.initialisation import initialise_parameters

HIDDEN = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
WIDER = {"width_scaling": {"base_width": 4, "base_heads": 2}}  # a quarter of this width


def filled(head, config):
    initialise_parameters(head, config, seed=1)
    return perturb(head)


def lm_head(**changes):
    config = shape(**changes)
    return filled(LanguageModelHead(config, 11), config)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "geglu"])
def test_the_language_model_head_is_dense_activation_norm(activation, biases):
    head = lm_head(activation=activation, embedding_width=8, biases=biases)
    inner = F.gelu(linear(head.dense, HIDDEN), approximate="tanh" if activation == "gelu_tanh" else "none")
    torch.testing.assert_close(head(HIDDEN), norm(head.norm, inner), atol=1e-5, rtol=1e-5)
    assert head(HIDDEN).shape == (3, 8)
    names = {"dense.weight", "norm.weight", "bias"} | ({"dense.bias", "norm.bias"} if biases else set())
    assert set(head.state_dict()) == names


def test_without_a_transform_states_are_read_as_they_are():
    head = lm_head(head_transform=False)
    assert head(HIDDEN) is HIDDEN
    assert set(head.state_dict()) == {"bias"}


def test_the_norm_of_the_encoder_may_belong_to_the_head():
    head, plain = lm_head(final_norm="head", head_transform=False), lm_head(final_norm="head")
    torch.testing.assert_close(head(HIDDEN), norm(head.input_norm, HIDDEN), atol=1e-5, rtol=1e-5)
    inner = F.gelu(linear(plain.dense, norm(plain.input_norm, HIDDEN)))
    torch.testing.assert_close(plain(HIDDEN), norm(plain.norm, inner), atol=1e-5, rtol=1e-5)


def test_a_tied_head_owns_no_table():
    assert "weight" not in lm_head().state_dict()
    assert lm_head(tied_output=False).state_dict()["weight"].shape == (11, 16)
    assert "bias" not in lm_head(output_bias=False).state_dict()


def test_the_sentence_head_is_a_pooler_and_two_classes():
    config = shape(dropout=0.5)
    head = filled(SentenceHead(config, DropoutKey()), config)
    assert not torch.equal(head(HIDDEN), head(HIDDEN)), "dropout in training"
    head.eval()
    torch.testing.assert_close(head(HIDDEN), linear(head.classifier, torch.tanh(linear(head.pooler, HIDDEN))))


def test_the_discriminator_scores_every_token():
    config = shape()
    head = filled(DiscriminatorHead(config), config)
    expected = linear(head.score, F.gelu(linear(head.dense, HIDDEN)))[:, 0]
    torch.testing.assert_close(head(HIDDEN), expected)
    assert head(HIDDEN).shape == (3,)


def test_wider_models_divide_their_scores_by_how_much_wider_they_are():
    plain, scaled = shape(), shape(**WIDER)
    for build in (lambda config: LanguageModelHead(config, 11), DiscriminatorHead, lambda config: SentenceHead(config, DropoutKey())):
        heads = [build(config) for config in (plain, scaled)]
        values = filled(heads[0], plain).state_dict()
        heads[1].load_state_dict(values)
        one, other = (head.eval()(HIDDEN) for head in heads)
        bias = next((value for name, value in values.items() if name in ("classifier.bias", "score.bias")), 0.0)
        torch.testing.assert_close(other - bias, (one - bias) / 4)


def test_without_biases_only_what_reads_out_keeps_one():
    config = shape(biases=False)
    names = {name for head in (DiscriminatorHead(config), SentenceHead(config, DropoutKey())) for name, _ in head.named_parameters()}
    assert {name for name in names if "bias" in name} == {"score.bias", "classifier.bias"}
    silent = shape(biases=False, output_bias=False)
    for head in (DiscriminatorHead(silent), SentenceHead(silent, DropoutKey()), LanguageModelHead(silent, 11)):
        assert not [name for name, _ in head.named_parameters() if "bias" in name]

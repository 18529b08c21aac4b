"""Compiled activations in place of the plain ones: the same numbers within rounding, or a sentence."""

import copy

import pytest
import torch

from tests.model.packed import LENGTHS, packed_batch, perturb, shape
from xlm.errors import UserError
from xlm.model.compiled import compile_activations
from xlm.model.pretraining import PretrainingModel

VOCABULARY, LANGUAGES = 40, 3


def made(**changes):
    return perturb(PretrainingModel(shape(**changes), VOCABULARY, LANGUAGES, seed=1))


def gradients(model, predictions=9, lengths=LENGTHS):
    loss = model.language_model_loss(packed_batch(lengths, predictions), torch.ones(predictions)).total
    return loss, torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)


def test_every_layer_computes_with_what_was_compiled(monkeypatch):
    seen = []

    def watched(function, **options):
        return lambda *arguments: (seen.append(function.__name__), function(*arguments))[1]

    monkeypatch.setattr(torch, "compile", watched)
    plain = made(layers=3, generator={"width": 8, "layers": 2, "heads": 2, "feed_forward": 16}, discriminator_head=True)
    model = copy.deepcopy(plain)
    compile_activations(model)
    seen.clear()
    loss, found = gradients(model)
    assert seen.count("activation_gradient") == 3
    assert seen.count("activated") == 6  # forward, and again in backward
    expected_loss, expected = gradients(plain)
    assert torch.equal(loss, expected_loss)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)
    assert len({part.operations for part in model.modules() if hasattr(part, "operations")}) == 1


def test_where_nothing_can_be_compiled_a_sentence_says_so(monkeypatch):
    def broken(function, **options):
        def call(*arguments):
            raise RuntimeError("No C++ compiler found\nmore")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(UserError, match=r"does not work here \(No C\+\+ compiler found\); set training.compile to false"):
        compile_activations(made())


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["gelu", "geglu"])
def test_real_compiled_operations_give_the_same_gradients_for_any_number_of_tokens(activation):
    plain = made(activation=activation)
    model = copy.deepcopy(plain)
    compile_activations(model)
    for lengths in (LENGTHS, (3,), (9, 9, 4)):
        (loss, found), (expected_loss, expected) = gradients(model, 2, lengths), gradients(plain, 2, lengths)
        torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

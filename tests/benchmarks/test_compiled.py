"""What the benchmark of torch.compile puts in the model's place computes the same, and is taken out again."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.mark.parametrize("kind", ["Case", "GatedCase"])
def test_the_operations_to_compile_are_the_models_own(kind, monkeypatch):
    import compiled
    from training.text import packed_step

    calls = []

    def uncompiled(function, **options):
        return lambda *arguments: (calls.append(function.__name__), function(*arguments))[1]

    monkeypatch.setattr(torch, "compile", uncompiled)
    case = getattr(compiled, kind)(32, 2, 2, "monolingual", "fp32", rows=4, rounds=1, vocabulary=500, row_tokens=64, step_tokens=256)
    turns, (batch,) = compiled.Turns(case), packed_step(case, 0)
    operations = compiled.CompiledOperations(turns.model)
    loss, gradients = turns.gradients(batch)
    assert not calls
    with operations.in_place():
        other_loss, other_gradients = turns.gradients(batch)
    assert set(calls) == {"activated", "activation_gradient", "normalised_sum"}
    torch.testing.assert_close(other_loss, loss)
    torch.testing.assert_close(other_gradients, gradients)
    calls.clear()
    turns.step(batch)
    assert not calls

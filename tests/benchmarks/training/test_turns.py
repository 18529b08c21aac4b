"""A comparison in small, in real processes: everything that is measured, nothing of how fast."""

from dataclasses import replace

import pytest
from training import models
from training.cases import Case
from training.turns import SideProcess, compare

# Pairs show what monolingual rows do and more: micro-batches that differ.
CASE = Case(32, 2, 2, "pairs", "fp32", rows=4, rounds=2, vocabulary=500, row_tokens=64, step_tokens=600)


@pytest.mark.slow
def test_both_sides_train_on_the_same_tokens_to_the_same_losses():
    found = compare(CASE, held_out=True)
    ours, peer = found.sides["ours"], found.sides["peer"]
    assert ours.tokens == peer.tokens
    assert ours.predictions == peer.predictions
    assert ours.flops == peer.flops
    assert ours.parameters == peer.parameters - models.FIRST_POSITION * CASE.width  # rows of positions that RoBERTa skips
    assert ours.positions == ours.tokens
    assert all(padded > real for padded, real in zip(peer.positions, peer.tokens, strict=True))
    assert ours.losses == pytest.approx(peer.losses, abs=2e-4)
    assert ours.held_out_loss == pytest.approx(peer.held_out_loss, abs=2e-4)
    assert ours.losses[0] > 0
    assert [each.gradient_bytes for each in (ours, peer)] == [4 * each.parameters for each in (ours, peer)]
    assert len(ours.seconds) == len(peer.seconds) == CASE.rounds
    assert min(ours.seconds + peer.seconds) > 0
    assert min(found.peaks.values()) > 0


def test_a_side_that_fails_is_a_sentence():
    with SideProcess("ours", replace(CASE, heads=3)) as process, pytest.raises(RuntimeError, match=r"the process of 'ours' ended"):
        process.ask("load")

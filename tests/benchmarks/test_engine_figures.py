"""What the engine's benchmark makes of seconds and losses, and that its ranks and its reference train alike."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def engine():
    sys.path.insert(0, str(FOLDER))  # the benchmark imports its neighbours
    try:
        spec = importlib.util.spec_from_file_location("engine_benchmark", FOLDER / "engine.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


def test_a_checkpoint_is_spread_over_the_steps_between_two(engine):
    case = engine.QUICK[0]
    seconds = {"bare_s": [3.0, 3.0, 2.0], "whole_s": [3.0, 4.0, 3.97], "bare_cpu_s": [1.0] * 3, "whole_cpu_s": [1.0] * 3}
    figures = engine.loop_figures({**seconds, "save_s": 5.0, "save_cpu_s": 0.0}, case)
    assert case.block_steps == 3
    assert figures["ratios"] == pytest.approx([3.0 / 3.03, 3.0 / 4.03, 0.5])  # 5 s over 500 steps are .03 s a block
    assert figures["loop"] == pytest.approx(3.0 / 4.03)
    assert figures["loop_processor_time"] == 1.0


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0 + 5e-4], None),
        ([1.0, 2.0, 3.0, 4.0, 5.0 + 1e-4, 6.0], "ZeRO 2 differs by 2.0e-05 in the first 5 steps; at most 1e-05 was asked for"),
        (
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.001],
            "ZeRO 2 differs by 1.7e-04 over 6 steps, more than 3 times the 3.3e-05 of permuted micro-batches",
        ),
        ([math.nan, 2.0, 3.0, 4.0, 5.0, 6.0], "ZeRO 2 differs by nan in the first 5 steps; at most 1e-05 was asked for"),
    ],
)
def test_losses_that_are_too_far_apart_are_told(engine, found, sentence):
    reference = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    orders = [reference, [*reference[:5], 6.0 + 2e-4]]
    assert engine.disagreement(engine.loss_figures({2: found}, reference, orders)) == sentence


@pytest.mark.slow
def test_ranks_train_as_plain_pytorch_does(engine, tmp_path):
    engine.write_shards(tmp_path)
    case = engine.LossCase(steps=6, tokens_per_step=1024)
    reference = engine.reference_losses(case, tmp_path)
    found = engine.run_ranks({"losses": engine.asdict(case), "stage": 2}, tmp_path, 2)
    assert found == pytest.approx(reference, rel=1e-5)
    assert reference[-1] < reference[0]

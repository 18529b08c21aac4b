"""Estimated memory against the ZeRO paper's formula, and against what two real ranks need."""

import json

import pytest
from ranks import run_ranks

from xlm.config.model import ModelConfig
from xlm.config.training import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.training.activation_memory import ActivationMemory, MicroBatch, activation_memory
from xlm.training.memory_estimate import NUMBER_BYTES, ModelSizes, estimate_memory

OPTIMIZER = OptimizerSection(learning_rate=1e-3)
NOTHING = ActivationMemory(0, 0, 0)
BUCKETS = {"reduce_bucket_size": 20_000_000, "overlap_comm": False, "contiguous_gradients": True}
OFFLOADED = {"offload_optimizer": {"device": "cpu"}}


def a_shape(width, layers, vocabulary, tokens, stage, precision, *, micro_steps=2, zero=None, training=None):
    model = {"width": width, "layers": layers, "heads": 2, "feed_forward": 4 * width, "max_positions": 128}
    sizes = {"model": model, "vocabulary": vocabulary, "tokens": tokens, "length": 128, "predicted": 0.15, "micro_steps": micro_steps}
    return {**sizes, "precision": precision, "zero": {"stage": stage, **BUCKETS, **(zero or {})}, "training": training or {}}


# A table, activations, and both of them, in the cells in which memory lies differently.
SMALL = [a_shape(64, 4, 2_000, 16384, 2, "fp32", micro_steps=1)]  # tensors of 4 MiB, which go back to the system one by one
SHAPES = [
    a_shape(192, 2, 100_000, 512, 2, "fp32"),
    a_shape(64, 8, 2_000, 16384, 2, "fp32", micro_steps=1),
    a_shape(128, 6, 60_000, 8192, 2, "fp32"),
    a_shape(192, 2, 100_000, 512, 2, "bf16"),
    a_shape(192, 2, 100_000, 512, 1, "bf16"),
    a_shape(192, 2, 100_000, 512, 3, "bf16"),
    a_shape(192, 2, 100_000, 512, 0, "fp32"),
    a_shape(192, 2, 100_000, 512, 1, "fp32"),
    a_shape(192, 2, 100_000, 512, 3, "fp32"),
    a_shape(64, 8, 2_000, 16384, 2, "fp32", micro_steps=1, training={"activation_checkpointing": True}),
]


def estimate(shape, ranks=2):
    config = ModelConfig.model_validate(shape["model"])
    sizes = ModelSizes.of(config, shape["vocabulary"], 1, OPTIMIZER)
    batch = MicroBatch(shape["tokens"], shape["length"], int(shape["predicted"] * shape["length"]) * shape["tokens"] // shape["length"])
    recomputes = shape["training"].get("activation_checkpointing", False)
    needs = activation_memory(config, shape["vocabulary"], batch, NUMBER_BYTES[shape["precision"]], recomputes=recomputes)
    return estimate_memory(sizes, shape["zero"], shape["precision"], ranks, needs, shape["micro_steps"])


def measured(shapes, folder):
    run_ranks("memory_worker.py", [json.dumps(shapes), str(folder)], world_size=2, timeout_s=1500)
    found = [json.loads((folder / f"{number}.json").read_text()) for number in range(len(shapes))]
    return [max(one[moment] for moment in ("building", "accumulating", "stepping")) for one in found]


def test_a_small_training_needs_what_is_estimated(tmp_path):
    (peak,) = measured(SMALL, tmp_path)
    assert estimate(SMALL[0]).total_bytes == pytest.approx(peak, rel=0.15)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_trainings_need_what_is_estimated(tmp_path):
    peaks = measured(SHAPES, tmp_path)
    ratios = [estimate(shape).total_bytes / peak for shape, peak in zip(SHAPES, peaks, strict=True)]
    assert ratios == [pytest.approx(1.0, abs=0.15)] * len(SHAPES)
    assert peaks[-1] < 0.5 * peaks[1]  # the same shape, its layers computed again


@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_16_bits_follow_the_zero_paper_with_gradients_in_fp32(ranks):
    """Rajbhandari et al. 2020, figure 1: (2 + 2 + 12) P, with 4 P of gradients here, over N what the stage cuts."""
    sizes = ModelSizes(((1_000 * 64,), (64 * 64 * 10,)), 64_000)
    everything = sizes.parameters
    for stage, by_paper in ((1, 2 + 4 + 12 / ranks), (2, 2 + (4 + 12) / ranks)):
        found = estimate_memory(sizes, {"stage": stage}, "bf16", ranks, NOTHING, 2)
        held = sum(found.held.values()) + (found.at_loss.get("gradients", 0))
        assert held == pytest.approx(by_paper * everything)
    found = estimate_memory(sizes, {"stage": 3, "stage3_max_live_parameters": 0}, "bf16", ranks, NOTHING, 2)
    assert sum(found.held.values()) == pytest.approx((2 + 4 + 12) / ranks * everything)


def test_offloading_moves_bytes_and_loses_none():
    sizes = ModelSizes(((64_000,), (40_960,)), 64_000)
    on_device = estimate_memory(sizes, {"stage": 2}, "bf16", 4, NOTHING, 2)
    offloaded = estimate_memory(sizes, {"stage": 2, **OFFLOADED}, "bf16", 4, NOTHING, 2)
    moved = sum(on_device.held.values()) - sum(offloaded.held.values())
    assert sum(offloaded.host.values()) == moved + on_device.at_loss["gradients"]


def test_a_model_is_measured_without_being_filled():
    config = ModelConfig(width=16, layers=2, heads=2, feed_forward=32, max_positions=16)
    sizes = ModelSizes.of(config, 50, 3, OPTIMIZER)
    assert sizes.parameters == sum(one.numel() for one in PretrainingModel(config, 50, 3).parameters())
    assert sizes.table == 50 * 16


def test_the_table_is_kept_whole_by_every_rank_that_owns_a_part():
    sizes = ModelSizes(((30, 10), (100,)), 100)
    assert sizes.part(4) == 10 + 25
    assert sizes.owned_whole(4) == 30 + 100
    assert sizes.owned_whole(1) == 140

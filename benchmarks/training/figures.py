"""From what two sides did to the figures that are reported."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from training.cases import Case
from training.turns import Comparison, Record

GIB = 1 << 30
# Of a loss about 12.5: what rounding makes of the same computation.
LOSS_DIFFERENCE = {"fp32": 1e-4, "bf16": 3e-2}
Figures = dict[str, Any]


def speed(record: Record) -> Figures:
    """Return useful tokens a second of the fastest and the median step; steps differ in tokens, so rates are compared."""
    rates = [tokens / seconds for tokens, seconds in zip(record.tokens, record.seconds, strict=True)]
    processor = [tokens / seconds for tokens, seconds in zip(record.tokens, record.cpu_seconds, strict=True)]
    return {"fastest": max(rates), "median": statistics.median(rates), "a_processor_second": max(processor)}


def shares(record: Record, peaks: Mapping[str, float]) -> Figures:
    """Return the fastest step's model FLOP/s over the best matrix product's, by the common count and by what is needed."""
    peak = max(peaks.values())
    return {
        name: max(flops / seconds for flops, seconds in zip(getattr(record, counted), record.seconds, strict=True)) / peak
        for name, counted in (("common_count", "flops"), ("needed", "needed_flops"))
    }


def case_figures(comparison: Comparison) -> Figures:
    """Return the ratios of a case, ours over the peer's, and what they are made of."""
    ours, peer = comparison.sides["ours"], comparison.sides["peer"]
    fast = {name: speed(record) for name, record in comparison.sides.items()}
    return {
        "case": asdict(comparison.case),
        "tokens_per_second": fast,
        "ratio": fast["ours"]["fastest"] / fast["peer"]["fastest"],
        "ratio_of_medians": fast["ours"]["median"] / fast["peer"]["median"],
        "ratio_in_processor_time": fast["ours"]["a_processor_second"] / fast["peer"]["a_processor_second"],
        "memory_beyond_bytes": {name: max(record.beyond_bytes) for name, record in comparison.sides.items()},
        "memory_ratio": max(peer.beyond_bytes) / max(ours.beyond_bytes),
        "gemm_share": shares(ours, comparison.peaks),
        "peer_gemm_share": shares(peer, comparison.peaks),
        "gemm_flops_per_second": comparison.peaks,
        "largest_loss_difference": max(abs(own - theirs) for own, theirs in zip(ours.losses, peer.losses, strict=True)),
        "sides": {name: asdict(record) for name, record in comparison.sides.items()},
    }


def spread_figures(comparisons: Sequence[Comparison]) -> Figures:
    """Return both sides' losses on held-out text by seed, how far they are apart, and how far the seeds are."""
    losses = {name: [each.sides[name].held_out_loss for each in comparisons] for name in ("ours", "peer")}
    return {
        "seeds": [each.case.seed for each in comparisons],
        "held_out_loss": losses,
        "largest_difference": max(abs(own - theirs) for own, theirs in zip(losses["ours"], losses["peer"], strict=True)),
        "spread_of_seeds": max(losses["peer"]) - min(losses["peer"]),
        "steps": comparisons[0].case.rounds,
    }


def keys(cases: Sequence[Figures]) -> dict[str, dict[str, float]]:
    """Return each key's figure in every case measured, by its name.

    ``memory`` is taken from monolingual rows, where both sides' micro-batches have the same tokens; ``gemm_share``
    from fp32 and bf16 alike, each over the peak of its own precision. Its count is the usual one; `needed` in the raw
    figures leaves out what the last layer skips, about 4 %.
    """
    of_kind = {kind: [each for each in cases if each["case"]["kind"] == kind] for kind in ("monolingual", "pairs")}
    rows = of_kind["monolingual"]
    by_key: dict[str, dict[str, float]] = {
        **{kind: {label(each): each["ratio"] for each in measured} for kind, measured in of_kind.items()},
        "memory": {label(each): each["memory_ratio"] for each in rows},
        "gemm_share": {label(each): each["gemm_share"]["common_count"] for each in rows},
    }
    return {key: figures for key, figures in by_key.items() if figures}


def worst(by_key: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[str, float]]:
    """Return each key's worst case, and its figure."""
    return {key: min(figures.items(), key=lambda item: item[1]) for key, figures in by_key.items()}


def label(figures: Figures) -> str:
    """Return the name of the case that figures are of."""
    return Case(**figures["case"]).name


def disagreement(cases: Sequence[Figures], spread: Figures) -> str | None:
    """Return in which case the two sides' losses are too far apart for their speeds to be compared, None where in none.

    Both start from the same weights and see the same data, so fp32 differs by rounding alone; what is left after training is
    held against what another seed changes.
    """
    for each in cases:
        allowed = LOSS_DIFFERENCE[each["case"]["precision"]]
        if each["largest_loss_difference"] > allowed:
            return f"{label(each)}: the two sides' losses differ by {each['largest_loss_difference']:.1e}; up to {allowed:g} is rounding"
    if spread["largest_difference"] > spread["spread_of_seeds"]:
        return f"held-out losses of the two sides differ by {spread['largest_difference']:.1e}, seeds by {spread['spread_of_seeds']:.1e}"
    return None


def line(comparison: Comparison, figures: Figures) -> str:
    """Return what is printed of a case: speed with its ratios, then memory in GiB and the loss after the same tokens, ours first."""
    rates, beyond = figures["tokens_per_second"], figures["memory_beyond_bytes"]
    share = figures["gemm_share"]
    ours, peer = comparison.sides["ours"], comparison.sides["peer"]
    return (
        f"{comparison.case.name:<26} tokens/s ours {rates['ours']['fastest']:>7,.0f} peer {rates['peer']['fastest']:>6,.0f} "
        f"ratio {figures['ratio']:5.2f} (median {figures['ratio_of_medians']:.2f}, processor {figures['ratio_in_processor_time']:.2f})  "
        f"of the GEMM peak {share['common_count']:.2f} (needed {share['needed']:.2f})\n"
        f"{'':<26} peak memory, GiB {max(ours.peak_bytes) / GIB:.2f} and {max(peer.peak_bytes) / GIB:.2f}, "
        f"beyond what training holds {beyond['ours'] / GIB:.2f} and {beyond['peer'] / GIB:.2f}: {figures['memory_ratio']:.1f}  "
        f"loss of the last step {ours.losses[-1]:.4f} and {peer.losses[-1]:.4f}, at most {figures['largest_loss_difference']:.1e} apart"
    )

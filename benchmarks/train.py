"""Training steps against transformers' XLM-R, fed as its scripts feed it; speed in useful tokens a second.

    python benchmarks/train.py             everything (about 45 minutes on two cores without bf16)
    python benchmarks/train.py --quick     small models, one round: does it run

monolingual  full rows of 256 tokens. The peer is (a): `run_mlm`'s model and collator, logits at every position.
pairs        translation pairs, lengths as measured in real text (`training.text`). The peer is (b): the same model on
             20 pairs at a time padded to the longest, in random order: about 2,048 positions; 10 at d 768, for
             24 GB of memory. Ours packs the same pairs into micro-batches of at most 2,048 tokens.
memory       of a monolingual step beyond parameters, gradients and optimizer state (`training.memory`), peer over ours.
gemm_share   model FLOP/s of our fastest monolingual step (`xlm.model.flops`) over the best matrix product of the same run.

XLM-R's vocabulary of 250,002 at d 768 x 12 layers and d 256 x 6; an optimizer step of 8,192 tokens (a few more where
pairs do not add up) in micro-batches of 2,048; 15 % masked, dropout 0, fused AdamW, no clipping, gradients let go after
each step; a thread for each core. Both sides start from the same weights, get the same ids and masks, and report the
mean loss over the step's predictions, so that their losses have to agree. Masking and padding are done before the timed
step, for both sides alike (`make bench-data` is about them). Each side is a process of its own; they take turns micro-batch by
micro-batch. A ratio is that of the fastest steps (of one to three), and each key is its worst case, which `worst` names
among the raw figures; those have all, medians and processor time too. Losses that disagree are an error. bf16 is
autocast, measured where the processor multiplies it. A small model is trained from three seeds, to hold the difference of
the two sides' losses against.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import Any

from results import write_results
from training.cases import Case, precisions
from training.figures import case_figures, disagreement, keys, line, spread_figures, worst
from training.turns import compare, threads

BASE = {"width": 768, "layers": 12, "heads": 12, "rows": 8}
NARROW = {"width": 256, "layers": 6, "heads": 4, "rows": 8}
# Timed steps of a kind by width. On two cores the peer's padded pairs take five minutes a step at width 768.
ROUNDS = {128: (2, 2), 256: (3, 2), 768: (2, 1)}
QUICK = {"width": 128, "layers": 2, "heads": 2, "rows": 4, "vocabulary": 30_000, "step_tokens": 2_048}
SMALL = Case(64, 2, 2, "monolingual", "fp32", 8, 40, vocabulary=4_000, row_tokens=64, step_tokens=2_048, learning_rate=1e-3)
SEEDS = 3
KINDS = ("monolingual", "pairs")


def cases(quick: bool) -> list[Case]:
    """Return what is measured, the small models first."""
    shapes = [QUICK] if quick else [NARROW, BASE]
    return [
        Case(kind=kind, precision=precision, rounds=rounds, **shape)
        for shape in shapes
        for precision in precisions()
        for kind, rounds in zip(KINDS, ROUNDS[shape["width"]], strict=True)
    ]


def measure(chosen: list[Case]) -> tuple[dict[str, float], dict[str, Any]]:
    """Measure the cases and the spread of seeds; return the keys and the raw figures."""
    raw: dict[str, Any] = {}
    for case in chosen:
        comparison = compare(case)
        raw[case.name] = case_figures(comparison)
        print(line(comparison, raw[case.name]), flush=True)
    by_key = keys(list(raw.values()))
    spread = spread_figures([compare(replace(SMALL, seed=seed), held_out=True, with_peaks=False) for seed in range(SEEDS)])
    print(
        f"held-out loss of a small model after {spread['steps']} steps: sides differ by {spread['largest_difference']:.1e}, "
        f"{SEEDS} seeds by {spread['spread_of_seeds']:.1e}"
    )
    problem = disagreement(list(raw.values()), spread)
    if problem is not None:
        raise RuntimeError(f"nothing is written: {problem}")
    named = worst(by_key)
    details = {"worst": {key: case for key, (case, _) in named.items()}, "by_case": by_key, "spread": spread, "threads": int(threads())}
    return {key: figure for key, (_, figure) in named.items()}, raw | details


def main() -> None:
    """Measure and write the results; a quick run only prints them."""
    parser = argparse.ArgumentParser(description="Training steps against transformers' XLM-R.")
    parser.add_argument("--quick", action="store_true", help="small models; nothing is written")
    parser.add_argument("--only", help="cases whose name contains this; nothing is written")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    chosen = [case for case in cases(options.quick) if options.only is None or options.only in case.name]
    ratios, raw = measure(chosen)
    for name, ratio in ratios.items():
        print(f"{name:<12} {ratio:6.2f}  ({raw['worst'][name]})")
    if not options.quick and options.only is None:
        write_results("train", ratios, raw)


if __name__ == "__main__":
    main()

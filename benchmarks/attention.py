"""The way that attention chooses against every other way through it, forward and backward, by shape and precision.

Candidates: length groups with products, the fused kernel (one call for each run of equal lengths), tiles of
products, torch's attention on padded groups, and one mask over the whole batch. They take turns in one process;
processor time counts, the steadier figure beside other work. A ratio is the fastest candidate's time over the chosen
one's; .9 is asked for. Where the choice is one of the candidates for all sequences, it is not measured a second time.
bf16 is measured where the processor has products for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812
from results import write_results
from torch import Tensor
from training.cases import precisions

from xlm.model.attention import AttentionPlan, attend, plan_attention
from xlm.model.attention import plan as plans
from xlm.model.attention.packed import PackedAttention
from xlm.model.attention.padded import attend_padded
from xlm.model.attention.plan import Route
from xlm.seeding import keyed_generator

TOKENS = 4096
HEAD_WIDTH = 64
SECONDS = 2.0  # of processor time that the chosen one gets for a shape, and at least two turns
HOPELESS = 2.5  # times the fastest in the first turn: no second turn
NEVER = 1 << 40
MIXTURE = "mixture"
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Candidate = Callable[[Tensor], Tensor]


def shapes() -> dict[str, tuple[list[int], int | None]]:
    """Return lengths of sequences and the window's reach by name."""
    generator = keyed_generator("benchmark", "attention")

    def between(low: int, high: int, tokens: int) -> list[int]:
        return [int(length) for length in generator.integers(low, high + 1, size=2 * tokens // (low + high))]

    found: dict[str, tuple[list[int], int | None]] = {"5-40": (between(5, 40, TOKENS), None), "10-60": (between(10, 60, TOKENS), None)}
    found |= {str(length): ([length] * max(1, TOKENS // length), None) for length in (128, 256, 512, 2048, 8192)}
    found["mixed"] = (between(5, 60, 1000) + [128] * 8 + [512] * 2 + [2048], None)
    found |= {f"{length}, window 64": ([length] * (TOKENS // length), 64) for length in (256, 2048)}
    return found


def candidates(plan: AttentionPlan, scale: float) -> dict[str, Candidate]:
    """Return what can serve a plan; what needs scores of all pairs only where they fit."""
    with patch.multiple(plans, FUSED_LENGTH=1, FUSED_QUERIES=1, FUSED_WINDOWS=NEVER):
        fused = plans.route_by(plan, fused=True, tiled_length=1)
    routes = {"groups": plans.route_by(plan, fused=False, tiled_length=NEVER), "fused": fused}
    routes["tiles"] = plans.route_by(plan, fused=False, tiled_length=1)

    def by(route: Route) -> Candidate:
        return lambda qkv: PackedAttention.apply(qkv, plan, route, scale, None)  # type: ignore[no-any-return]

    found: dict[str, Candidate] = {name: by(route) for name, route in routes.items() if name != "groups" or plan.longest <= 2048}
    found[MIXTURE] = lambda qkv: attend(qkv, plan)
    if plan.longest <= 2048:
        found["padded"] = lambda qkv: attend_padded(qkv, plan, scale)
    if plan.tokens <= 1.2 * TOKENS:
        found["one mask"] = one_mask(plan)
    return found


def chosen_name(plan: AttentionPlan, precision: torch.dtype) -> str:
    """Return which candidate attention chooses, or that it mixes them."""
    route = plan.route(fused=precision == torch.float32, sixteen_bits=precision == torch.bfloat16)
    used = [name for name, part in (("groups", route.groups), ("fused", route.runs), ("tiles", route.tiled)) if part]
    return used[0] if len(used) == 1 else MIXTURE


def one_mask(plan: AttentionPlan) -> Candidate:
    """Return torch's attention over all tokens with a mask that keeps sequences and windows apart."""
    sequence = torch.repeat_interleave(torch.arange(len(plan.bounds) - 1), plan.cu_seqlens.diff())
    seen = sequence[:, None] == sequence
    if plan.reach is not None:
        place = torch.arange(plan.tokens)
        seen &= (place[:, None] - place).abs() <= plan.reach

    def run(qkv: Tensor) -> Tensor:
        query, key, value = qkv.view(1, plan.tokens, 3, plan.heads, HEAD_WIDTH).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen).transpose(1, 2).reshape(plan.tokens, -1)

    return run


def measure(lengths: list[int], reach: int | None, heads: int, precision: torch.dtype) -> tuple[str, dict[str, float]]:
    """Return what is chosen, and each candidate's fastest turn in milliseconds of processor time."""
    plan = plan_attention(torch.tensor([0, *lengths]).cumsum(0).int(), heads, reach=reach)
    qkv = torch.randn(plan.tokens, 3 * heads * HEAD_WIDTH).to(precision).requires_grad_()
    direction = torch.randn(plan.tokens, heads * HEAD_WIDTH).to(precision)
    chosen = chosen_name(plan, precision)
    left = {name: run for name, run in candidates(plan, HEAD_WIDTH**-0.5).items() if name != MIXTURE or chosen == MIXTURE}
    fastest: dict[str, float] = {}
    spent = 0.0
    turn = 0
    while left and (turn < 3 or spent < SECONDS):
        for name, candidate in left.items():
            started = time.process_time()
            torch.autograd.grad(candidate(qkv), qkv, direction)
            took = time.process_time() - started
            spent += took if name == chosen and turn else 0.0
            # The first turn warms up: it only counts for who is dropped after it.
            fastest[name] = took if turn < 2 else min(fastest[name], took)
        turn += 1
        best = min(fastest.values())
        left = {name: run for name, run in left.items() if name == chosen or fastest[name] <= HOPELESS * best}
    return chosen, {name: 1000 * seconds for name, seconds in fastest.items()}


def main() -> None:
    """Print the table and write the results: by precision the worst ratio over all shapes."""
    raw: dict[str, dict[str, float | str]] = {}
    ratios: dict[str, float] = {}
    for precision in precisions():
        for heads in (4, 12):
            for shape, (lengths, reach) in shapes().items():
                chosen, times = measure(lengths, reach, heads, TYPES[precision])
                ratio = min(times.values()) / times[chosen]
                ratios[precision] = min(ratio, ratios.get(precision, ratio))
                raw[f"{precision}, {heads} heads, {shape}"] = times | {"chosen": chosen, "ratio": ratio}
                print(f"{precision} {heads:>2} heads {shape:<16} {chosen:<8} {ratio:.2f}  ", end="")
                print("  ".join(f"{name} {milliseconds:,.0f}" for name, milliseconds in times.items()), "ms", flush=True)
    write_results("attention", ratios, raw)


if __name__ == "__main__":
    main()

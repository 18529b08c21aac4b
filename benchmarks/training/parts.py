"""Which part of a training step an operation belongs to, as torch's profiler reports it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

PARTS = (
    "linear maps",
    "attention",
    "vocabulary projection and loss",
    "embedding look-up and gradient",
    "norms and GELU",
    "optimizer",
    "copies, casts, fills, sums",
    "other",
)
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::matmul", "mkldnn")
_MOVES = ("copy", "fill", "zero", "empty", "cat", "clone", "contiguous", "add", "mul", "sum", "index_select", "_to_copy", "ones", "resize")
# What belongs to a part is mostly known by the function or module operation that called it; the first that fits counts.
_CALLERS = {
    "optimizer": ("Optimizer", "adam"),
    "attention": ("Attention", "scaled_dot_product", "flash", "Attend"),
    "vocabulary projection and loss": (
        "VocabularyLoss",
        "cross_entropy",
        "CrossEntropy",
        "nll_loss",
        "NllLoss",
        "log_softmax",
        "LogSoftmax",
    ),
    "embedding look-up and gradient": ("embedding", "Embedding", "Table", "LookUp"),
    "norms and GELU": ("layer_norm", "LayerNorm", "gelu", "Gelu"),
}


def part_of(names: Iterable[str], shapes: Iterable[Any], vocabulary: int) -> str:
    """Return the part of an operation: ``names`` are its own and its callers', innermost first, ``shapes`` of its inputs."""
    chain = list(names)
    wide = any(vocabulary in shape for shape in _sizes(shapes))
    for part, words in _CALLERS.items():
        if any(word in name for name in chain for word in words):
            return part
    if any(chain[0].startswith(product) for product in _PRODUCTS):
        return "vocabulary projection and loss" if wide else "linear maps"
    if any(move in chain[0] for move in _MOVES):
        return "copies, casts, fills, sums"
    return "other"


def seconds_by_part(events: Iterable[Any], vocabulary: int) -> dict[str, float]:
    """Add up the time that each part's operations took themselves, in seconds, from the profiler's events."""
    found: dict[str, float] = defaultdict(float)
    for event in events:
        part = part_of(_callers(event), event.input_shapes or (), vocabulary)
        found[part] += event.self_cpu_time_total / 1e6
    return {part: found.get(part, 0.0) for part in PARTS}


def table(columns: dict[str, dict[str, float]]) -> str:
    """Return Markdown: a line a part, seconds and share for each column."""
    lines = ["| part | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    totals = {name: sum(column.values()) for name, column in columns.items()}
    for part in PARTS:
        cells = (f"{column[part]:.2f} s, {column[part] / max(totals[name], 1e-9):.0%}" for name, column in columns.items())
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    lines.append("| all | " + " | ".join(f"{total:.2f} s" for total in totals.values()) + " |")
    return "\n".join(lines)


def _callers(event: Any) -> Iterator[str]:  # noqa: ANN401
    while event is not None:
        yield event.name
        event = event.cpu_parent


def _sizes(shapes: Iterable[Any]) -> Iterator[list[int]]:
    for shape in shapes:
        if shape and all(isinstance(size, int) for size in shape):
            yield shape
        elif isinstance(shape, (list, tuple)):
            yield from _sizes(shape)

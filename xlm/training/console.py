"""A logged step as one line for people, from the record that metrics.jsonl has of it.

    step  1,200/10,000  loss 4.1234  mlm 4.402 tlm 3.911  lr 9.8e-04  grad 0.92  12,345 tokens/s  mfu 41.2%  epochs 0.3-4.1
    left 1:02:03  3.1 GiB

(in one line). ``epochs`` are how often the median language and the one seen most often have come. What a run does not know,
such as the peak of its device, is left out. Columns keep their width, so that lines stand under each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDEST = 160  # characters


def console_line(record: Mapping[str, Any], total_steps: int) -> str:
    """Return the line; objectives that find no room are counted at the end of the others (``+2``)."""
    count = f"{total_steps:,}"
    parts = [f"step {record['step']:>{len(count)},}/{count}", _loss(record)]
    tail = [f"lr {record['learning_rate']:.1e}", _gradient(record), f"{record['tokens_per_second']:>9,.0f} tokens/s"]
    if record.get("mfu") is not None:
        tail.append(f"mfu {record['mfu']:>5.1%}")
    if "epochs/most" in record:
        tail.append(f"epochs {record['epochs/median']:.1f}-{record['epochs/most']:.1f}")
    if record.get("time_left_s") is not None:
        tail.append(f"left {clock(record['time_left_s']):>7}")
    memory = record.get("peak_device_memory_bytes", record.get("peak_memory_bytes"))
    if memory is not None:
        tail.append(f"{memory / 2**30:.1f} GiB")
    if record["skipped_steps"]:
        tail.append(f"skipped {record['skipped_steps']:,}")
    room = WIDEST - len("  ".join([*parts, *tail])) - len("  ")
    objectives = _objectives(record, room)
    return "  ".join([*parts, *([objectives] if objectives else []), *tail])


def validation_line(record: Mapping[str, Any]) -> str | None:
    """Return a line of what was validated at the record's step, if anything was."""
    if "validation/loss" not in record:
        return None
    loss = record["validation/loss"]
    parts = [
        f"{name} {record[f'validation/{name}']:.3f} ({record[f'validation/accuracy/{name}']:.1%} right)"
        for name in ("mlm", "tlm")
        if record.get(f"validation/{name}") is not None
    ]
    told = "loss is not finite" if loss is None else f"loss {loss:.4f}"
    return f"validation after step {record['step']:,}: {'; '.join([told, ', '.join(parts)] if parts else [told])}"


def clock(seconds: float) -> str:
    """Return ``1:02:03``, with days in front where there are any."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days} d ' if days else ''}{hour}:{minute:02}:{second:02}"


def _loss(record: Mapping[str, Any]) -> str:
    return "no step applied" if record["loss"] is None else f"loss {record['loss']:>7.4f}"


def _gradient(record: Mapping[str, Any]) -> str:
    norm = record["gradient_norm"]
    return f"grad {'-' if norm is None else f'{norm:.2f}':>5}"


def _objectives(record: Mapping[str, Any], room: int) -> str:
    found = {name.removeprefix("loss/"): value for name, value in record.items() if name.startswith("loss/") and name.count("/") == 1}
    shown = [f"{name} {value:.3f}" for name, value in found.items()]
    for count in range(len(shown), 0, -1):
        text = " ".join([*shown[:count], *([f"+{len(shown) - count}"] if count < len(shown) else [])])
        if len(text) <= room:
            return text
    return ""

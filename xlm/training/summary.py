"""What a finished training says about itself: in its stage's record, and on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xlm.mixing.data_plan import DataPlan
from xlm.mixing.seen import seen_table
from xlm.runs.stage import Stage
from xlm.tracking.json_lines import JsonLines
from xlm.training.loop import LoopResult
from xlm.training.run_record import RunRecord
from xlm.training.training_log import METRICS


def finish_training(
    stage: Stage, plan: DataPlan, record: RunRecord, result: LoopResult, *, wall_s: float, peak_bytes: int, parameters: int
) -> None:
    """Write the stage's record and show the summary."""
    lines = JsonLines(stage.folder / METRICS).read()
    summary = training_summary(record, result, lines, parameters) | {"seen": seen_table(plan, result.steps, result.seen)}
    peak_bytes = peak_memory(lines, peak_bytes)
    stage.finish_in_place(summary, wall_s, peak_bytes)
    print("\n".join(summary_lines(summary, wall_s, peak_bytes)))


def training_summary(record: RunRecord, result: LoopResult, lines: Sequence[Mapping[str, Any]], parameters: int) -> dict[str, Any]:
    """Return the summary of a training that ended; ``lines`` are all records of metrics.jsonl.

    ``tokens_per_second`` is over the time of training steps alone: starting up and saving are left out.
    """
    before = [0, *(int(line["tokens"]) for line in lines)]
    steps_s = sum(
        (int(line["tokens"]) - done) / line["tokens_per_second"]
        for line, done in zip(lines, before, strict=False)
        if line["tokens_per_second"] > 0
    )
    tokens, by_language = result.seen.all_tokens, result.seen.tokens_by_language()
    return {
        "steps": result.steps,
        "skipped_steps": result.skipped_steps,
        "tokens": tokens,
        "tokens_by_language": {language: by_language[language] for language in record.languages},
        "tokens_per_second": round(tokens / steps_s, 1) if steps_s > 0 else 0.0,
        "losses": {name: value for name, value in (result.last or {}).items() if name.startswith("loss")},
        "accuracies": {name: value for name, value in (result.last or {}).items() if name.startswith("accuracy/")},
        "validation": {name: value for name, value in (result.last or {}).items() if name.startswith("validation/") and value is not None},
        "precision": record.precision,
        "world_size": record.world_size,
        "code_changed_on_resume": record.code_changed,
        "zero_stage": record.deepspeed["zero_optimization"]["stage"],
        "parameters": parameters,
    }


def peak_memory(lines: Sequence[Mapping[str, Any]], now_bytes: int) -> int:
    """Return the largest memory of a run in bytes, over all the starts it took."""
    return max([now_bytes, *(int(line.get("peak_memory_bytes", 0)) for line in lines)])


def summary_lines(summary: Mapping[str, Any], wall_s: float, peak_bytes: int) -> list[str]:
    """Return the table that a finished training shows."""
    total = max(summary["tokens"], 1)
    lines = [f"{'language':<10} {'tokens seen':>12} {'share':>7}"]
    lines += [f"{language:<10} {tokens:>12,} {tokens / total:>7.1%}" for language, tokens in summary["tokens_by_language"].items()]
    losses = [f"{name.removeprefix('loss/')} {value:.3f}" for name, value in summary["losses"].items() if name.count("/") == 1]
    hits = [f"{name.removeprefix('accuracy/')} {value:.1%}" for name, value in summary["accuracies"].items()]
    skipped = f" ({summary['skipped_steps']} skipped: their gradients were not finite)" if summary["skipped_steps"] else ""
    lines.append(
        f"pretraining: {summary['steps']:,} steps{skipped}, {summary['tokens']:,} tokens at {summary['tokens_per_second']:,.0f} a second, "
        f"{summary['parameters']:,} parameters, {summary['precision']}, ranks {summary['world_size']}, ZeRO {summary['zero_stage']}"
    )
    lines.append(f"pretraining: {wall_s:,.0f} s, {peak_bytes / 2**30:.1f} GiB; last losses: {', '.join(losses)}")
    if hits:
        lines.append(f"pretraining: last accuracies: {', '.join(hits)}")
    if "validation/loss" in summary["validation"]:
        lines += _validation_lines(summary["validation"])
    return lines


def _validation_lines(found: Mapping[str, float]) -> list[str]:
    """Return the last validation: a line a language, then the means."""
    objectives = [name for name in ("mlm", "tlm") if f"validation/{name}" in found]
    languages = sorted({name.split("/")[2] for name in found if name.count("/") == 2 and "/accuracy/" not in name})

    def cell(name: str) -> str:
        loss = found.get(f"validation/{name}")
        return f"{'-':>13}" if loss is None else f"{loss:>6.3f} {found[f'validation/accuracy/{name}']:>6.1%}"

    lines = [f"{'validation':<10} " + " ".join(f"{name:>13}" for name in objectives)]
    lines += [f"{language:<10} " + " ".join(cell(f"{name}/{language}") for name in objectives) for language in languages]
    means = ", ".join(f"{name} {found[f'validation/{name}']:.3f}" for name in objectives)
    return [*lines, f"pretraining: last validation: loss {found['validation/loss']:.4f} ({means})"]

"""Whether `xlm.model.width_scaling` does what it promises: the coordinate check of µP, and learning rates that transfer.

    python benchmarks/coordinate_check.py               the check: a few steps at widths 64 to 1024, a minute or two
    python benchmarks/coordinate_check.py --transfer    and the best learning rate at widths 64 and 256, ten minutes more

The check (Yang et al. 2022, Tensor Programs V, section D.1) trains one small masked language model at several widths for
a few steps of Adam at one learning rate and looks at the mean size of single numbers: of states after each layer, of attention
scores before the softmax, of scores of pieces. With the right parametrisation their changes depend on the steps, and
not on the width. Writes ``benchmarks/results/coordinate_check.json`` and a figure beside it; a "ratio" is how
much more a quantity's change grows from the smallest to the largest width without width scaling than with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from results import RESULTS, write_results
from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.config.training import OptimizerSection
from xlm.errors import exits_cleanly
from xlm.model.pretraining import PretrainingModel
from xlm.model.width_scaling import WidthScaling
from xlm.report.figure_style import colour, figure_style, new_figure, png_bytes
from xlm.training.parameter_groups import parameter_groups

PIECES, MASK, LENGTH = 512, 0, 32
TOPICS, TOPIC_PIECES = 32, 32
WIDTHS = (64, 128, 256, 512, 1024)
BASE, HEADS, LAYERS = 64, 4, 2
LEARNING_RATE, STEPS = 2.0**-7, 6
TRANSFER_WIDTHS, TRANSFER_STEPS = (BASE, 256), 100
TRANSFER_RATES = tuple(2.0**power for power in range(-9, -3))
EPSILON = 1e-8


@dataclass(frozen=True)
class Batch:
    """Sequences of `LENGTH` pieces end to end, some of them masked."""

    input_ids: Tensor  # [T]
    positions: Tensor  # [P] index of masked tokens
    labels: Tensor  # [P] the pieces that were there
    position_ids: Tensor = field(init=False)  # [T]
    cu_seqlens: Tensor = field(init=False)  # [S + 1] int32

    def __post_init__(self) -> None:
        sequences = len(self.input_ids) // LENGTH
        object.__setattr__(self, "position_ids", torch.arange(LENGTH).repeat(sequences))
        object.__setattr__(self, "cu_seqlens", torch.arange(sequences + 1, dtype=torch.int32) * LENGTH)


def batches(sequences: int, seed: int) -> Iterable[Batch]:
    """Yield batches in which a sequence has one of `TOPICS` topics, whose pieces are few and follow Zipf's law."""
    of_topic = np.random.default_rng(0).integers(1, PIECES, (TOPICS, TOPIC_PIECES))
    shares = 1.0 / np.arange(1, TOPIC_PIECES + 1)
    generator = np.random.default_rng(seed)
    while True:
        topics = generator.integers(0, TOPICS, (sequences, 1))
        ids = of_topic[topics, generator.choice(TOPIC_PIECES, (sequences, LENGTH), p=shares / shares.sum())].ravel()
        positions = np.flatnonzero(generator.random(ids.size) < 0.15)
        labels = ids[positions]
        ids[positions] = MASK
        yield Batch(*map(torch.from_numpy, (ids, positions, labels)))


def model_of(
    width: int, *, scaled: bool, norm_position: str = "pre", heads: int = HEADS, base: int = BASE, seed: int = 1
) -> PretrainingModel:
    """Build the small model; ``scaled`` turns width scaling on."""
    scaling = {"base_width": base, "base_heads": HEADS} if scaled else None
    sizes = {"width": width, "layers": LAYERS, "heads": heads, "feed_forward": 4 * width, "max_positions": LENGTH}
    config = ModelConfig(**sizes, norm_position=norm_position, initializer_range=0.05, width_scaling=scaling)
    return PretrainingModel(config, PIECES, 0, seed=seed)


def optimizer_of(model: PretrainingModel, learning_rate: float, epsilon: float = EPSILON) -> torch.optim.Optimizer:
    """Return Adam on the trainer's own parameter groups, so that what is checked is what is trained with; nothing decays."""
    section = OptimizerSection(learning_rate=learning_rate, epsilon=epsilon, weight_decay=0.0)
    groups = [{**group, "lr": learning_rate * group["lr_scale"]} for group in parameter_groups(model, section)]
    return torch.optim.AdamW(groups, betas=section.betas)


def loss_of(model: PretrainingModel, batch: Batch) -> Tensor:
    """Return the mean cross-entropy of the masked pieces."""
    states = model.encoder(batch.input_ids, batch.position_ids, batch.cu_seqlens, needed=batch.positions)
    return F.cross_entropy(model.logits(states), batch.labels)


def train(
    model: PretrainingModel, learning_rate: float, steps: int, data: Iterable[Batch], schedule: Callable[[int], float]
) -> list[float]:
    """Train for some steps and return the loss of each."""
    optimizer = optimizer_of(model, learning_rate)
    rates = [group["lr"] for group in optimizer.param_groups]
    losses = []
    for step, batch in zip(range(steps), data, strict=False):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * schedule(step)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@torch.no_grad()
def coordinates(model: PretrainingModel, batch: Batch) -> dict[str, Tensor]:
    """Return what the check looks at: states after each layer, attention scores, scores of pieces."""
    found: dict[str, Tensor] = {}
    hooks = []
    for number, block in enumerate(model.encoder.blocks):

        def keep(module: torch.nn.Module, _: Any, output: Tensor, number: int = number) -> None:  # noqa: ANN401
            found[f"attention scores {number + 1}"] = _attention_scores(model.config, output)

        hooks.append(block.attention.qkv.register_forward_hook(keep))
    layers = model.encoder(batch.input_ids, batch.position_ids, batch.cu_seqlens, return_layers=True)
    for hook in hooks:
        hook.remove()
    found.update({f"states {number}": states for number, states in enumerate(layers)})
    return {**found, "scores of pieces": model.logits(layers[-1][batch.positions])}


def _attention_scores(config: ModelConfig, qkv: Tensor) -> Tensor:
    """Return q k^T times the model's scale inside each sequence, [S, heads, L, L]."""
    query, key, _ = qkv.view(-1, LENGTH, 3, config.heads, config.width // config.heads).permute(2, 0, 3, 1, 4)
    scale = WidthScaling.of(config).attention_scale
    return query @ key.transpose(-1, -2) * ((config.width // config.heads) ** -0.5 if scale is None else scale)


def changes(model: PretrainingModel, steps: int = STEPS, learning_rate: float = LEARNING_RATE) -> dict[str, float]:
    """Train a few steps and return by how much, in the mean, each coordinate has changed since the start."""
    data = iter(batches(16, seed=1))
    probe = next(data)
    before = coordinates(model, probe)
    train(model, learning_rate, steps, data, lambda step: 1.0)
    return {name: float((after - before[name]).abs().mean()) for name, after in coordinates(model, probe).items()}


def slope(widths: Sequence[int], values: Sequence[float]) -> float:
    """Return the power of the width with which values grow (least squares in logarithms)."""
    return float(np.polyfit(np.log(widths), np.log(values), 1)[0])


def check(widths: Sequence[int], norm_position: str, *, scaled: bool) -> dict[str, list[float]]:
    """Return each coordinate's change at every width, the first of which is the base's."""
    found: dict[str, list[float]] = {}
    for width in widths:
        for name, value in changes(model_of(width, scaled=scaled, norm_position=norm_position, base=widths[0])).items():
            found.setdefault(name, []).append(value)
    return found


def transfer(widths: Sequence[int], *, scaled: bool) -> dict[int, dict[float, float]]:
    """Return, by width and learning rate, the mean loss over the last sixth of a short training."""

    def warm_up_then_down(step: int) -> float:
        return min((step + 1) / 12, (TRANSFER_STEPS - step) / (TRANSFER_STEPS - 12))

    found: dict[int, dict[float, float]] = {}
    for width in widths:
        if scaled and width == BASE:
            continue  # the same model as without
        for rate in TRANSFER_RATES:
            losses = train(model_of(width, scaled=scaled), rate, TRANSFER_STEPS, batches(16, seed=2), warm_up_then_down)
            found.setdefault(width, {})[rate] = float(np.mean(losses[-TRANSFER_STEPS // 6 :]))
            print(
                f"width {width}, {'with' if scaled else 'without'} scaling, rate 2^{np.log2(rate):.0f}: {found[width][rate]:.3f}",
                flush=True,
            )
    return found


def draw(measured: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], path: Path) -> None:
    """Draw the changes against the width: rows are norm positions, columns without and with width scaling."""
    hues = ("blue", "green", "red", "purple", "muted", "ink")
    with figure_style():
        figure = new_figure(5.2)
        axes = figure.subplots(2, 2, sharex=True, sharey="row")
        for row, (norm_position, by_scaling) in zip(axes, measured.items(), strict=True):
            for cell, (title, found) in zip(row, by_scaling.items(), strict=True):
                for hue, (name, values) in zip(hues, sorted(found.items()), strict=True):
                    cell.loglog(WIDTHS, values, marker="o", markersize=3, linewidth=1.2, color=colour(hue), label=name)
                cell.set_title(f"{norm_position}-norm, {title}", fontsize=9, loc="left")
                cell.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
                cell.minorticks_off()
            row[0].set_ylabel(f"mean change in {STEPS} steps")
        for cell in axes[1]:
            cell.set_xlabel("width")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_bytes(figure))


@exits_cleanly
def main() -> None:
    """Run the check, and the transfer where asked for; print slopes and write the results."""
    parser = argparse.ArgumentParser(description="coordinate check of width scaling")
    parser.add_argument("--transfer", action="store_true", help="also find the best learning rate at two widths")
    asked = parser.parse_args()
    columns = {"without": False, "with width scaling": True}
    measured = {
        norm_position: {title: check(WIDTHS, norm_position, scaled=scaled) for title, scaled in columns.items()}
        for norm_position in ("pre", "post")
    }
    ratios: dict[str, float] = {}
    slopes: dict[str, dict[str, tuple[float, float]]] = {}
    for norm_position, (without, scaled) in ((key, tuple(found.values())) for key, found in measured.items()):
        slopes[norm_position] = {name: (slope(WIDTHS, without[name]), slope(WIDTHS, scaled[name])) for name in sorted(scaled)}
        for name, (one, other) in slopes[norm_position].items():
            print(f"{norm_position}-norm  {name:<20} grows as width^{one:+.2f} without, width^{other:+.2f} with width scaling")
            ratios[f"{norm_position} {name}"] = (without[name][-1] / without[name][0]) / (scaled[name][-1] / scaled[name][0])
    draw(measured, RESULTS / "coordinate_check.png")
    raw: dict[str, Any] = {"widths": WIDTHS, "steps": STEPS, "learning_rate": LEARNING_RATE, "changes": measured, "slopes": slopes}
    if asked.transfer:
        raw["transfer"] = {title: transfer(TRANSFER_WIDTHS, scaled=scaled) for title, scaled in columns.items()}
    write_results("coordinate_check", ratios, raw)


if __name__ == "__main__":
    main()

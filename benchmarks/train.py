"""Training steps against transformers' XLM-R, fed the usual way; speed in useful tokens a second.

``monolingual``: rows of 128, all filled, as `run_mlm` groups texts; the peer computes logits at every
position. ``pairs``: translation pairs of 10 to 60 tokens, which the peer pads to the longest of a batch.
Same sizes, ids, masks, optimizer and precision; the two sides take turns in one process, and a ratio is
that of the fastest steps. Each key names its worst precision; the raw figures have both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from results import write_results
from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.model.pretraining import PretrainingModel
from xlm.seeding import keyed_generator

VOCABULARY = 16_000
TOKENS = 4096
MASK_RATE = 0.15
ROUNDS = 4
PAD, FIRST_PIECE = 1, 5
CONFIG = ModelConfig(
    width=256, layers=4, heads=4, feed_forward=1024, max_positions=128, norm_position="post", token_types=1, norm_epsilon=1e-5
)
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Data:
    """One batch in both forms: packed, and padded with labels of -100 where nothing is predicted."""

    input_ids: Tensor  # [T]
    position_ids: Tensor  # [T]
    cu_seqlens: Tensor  # [S + 1]
    positions: Tensor  # [P]
    labels: Tensor  # [P]
    padded_ids: Tensor  # [S, longest]
    padded_labels: Tensor  # [S, longest]


def batch(kind: str) -> Data:
    """Draw a batch of about ``TOKENS`` tokens."""
    generator = keyed_generator("benchmark", "train", kind)
    lengths = np.full(TOKENS // 128, 128) if kind == "monolingual" else generator.integers(10, 61, size=TOKENS // 35)
    tokens = int(lengths.sum())
    ids = torch.from_numpy(generator.integers(FIRST_PIECE, VOCABULARY, tokens))
    masked = torch.from_numpy(generator.random(tokens) < MASK_RATE)
    labels = torch.where(masked, ids, -100)
    split = lengths.tolist()
    return Data(
        input_ids=ids,
        position_ids=torch.cat([torch.arange(length) for length in split]),
        cu_seqlens=torch.tensor([0, *split]).cumsum(0).int(),
        positions=masked.nonzero().squeeze(1),
        labels=ids[masked],
        padded_ids=torch.nn.utils.rnn.pad_sequence(ids.split(split), batch_first=True, padding_value=PAD),
        padded_labels=torch.nn.utils.rnn.pad_sequence(labels.split(split), batch_first=True, padding_value=-100),
    )


def our_step(data: Data, precision: torch.dtype | None) -> Callable[[], float]:
    """Return a function that takes one optimizer step and returns the loss."""
    model = PretrainingModel(CONFIG, VOCABULARY, 0)
    return _stepper(
        model,
        precision,
        lambda: model.token_losses(model.encoder(data.input_ids, data.position_ids, data.cu_seqlens), data.positions, data.labels).mean(),
    )


def their_step(data: Data, precision: torch.dtype | None) -> Callable[[], float]:
    """Return the same for transformers, called as its training script does."""
    transformers.set_seed(0)
    model = transformers.XLMRobertaForMaskedLM(
        transformers.XLMRobertaConfig(
            vocab_size=VOCABULARY,
            hidden_size=CONFIG.width,
            num_hidden_layers=CONFIG.layers,
            num_attention_heads=CONFIG.heads,
            intermediate_size=CONFIG.feed_forward,
            max_position_embeddings=CONFIG.max_positions + PAD + 1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    mask = (data.padded_ids != PAD).long()
    return _stepper(model, precision, lambda: model(input_ids=data.padded_ids, attention_mask=mask, labels=data.padded_labels).loss)


def _stepper(model: torch.nn.Module, precision: torch.dtype | None, loss_of: Callable[[], Tensor]) -> Callable[[], float]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=precision, enabled=precision is not None):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def measure(kind: str, precision: str) -> dict[str, float]:
    """Return useful tokens a second of each side's fastest step, the ratios, and the last losses."""
    data = batch(kind)
    steps = {"ours": our_step(data, PRECISIONS[precision]), "transformers": their_step(data, PRECISIONS[precision])}
    seconds: dict[str, list[float]] = {side: [] for side in steps}
    cpu_seconds: dict[str, list[float]] = {side: [] for side in steps}
    losses: dict[str, float] = {}
    for _ in range(ROUNDS + 1):
        for side, step in steps.items():
            started, started_cpu = time.perf_counter(), time.process_time()
            losses[side] = step()
            seconds[side].append(time.perf_counter() - started)
            cpu_seconds[side].append(time.process_time() - started_cpu)
    fastest = {side: min(times[1:]) for side, times in seconds.items()}  # the first step warms up
    figures = {f"{side}_tokens_per_second": len(data.input_ids) / fastest[side] for side in steps}
    figures |= {f"{side}_loss": losses[side] for side in steps}
    figures["ratio"] = fastest["transformers"] / fastest["ours"]
    # Beside other work processor time is the steadier figure; on an idle machine both say the same.
    figures["cpu_time_ratio"] = min(cpu_seconds["transformers"][1:]) / min(cpu_seconds["ours"][1:])
    return figures


def main() -> None:
    """Measure both kinds in both precisions and write the results."""
    raw = {f"{kind}_{precision}": measure(kind, precision) for kind in ("monolingual", "pairs") for precision in PRECISIONS}
    for name, figures in raw.items():
        print(
            f"{name:<18} ours {figures['ours_tokens_per_second']:>8,.0f}  transformers {figures['transformers_tokens_per_second']:>8,.0f}"
            f"  ratio {figures['ratio']:.2f}  in processor time {figures['cpu_time_ratio']:.2f}"
        )
    ratios = {kind: min(raw[f"{kind}_{precision}"]["ratio"] for precision in PRECISIONS) for kind in ("monolingual", "pairs")}
    write_results("train", ratios, raw)


if __name__ == "__main__":
    main()

"""Losses and hits by objective and language, and what was seen, summed on the way, reduced over ranks only when they are shown.

The sums come from the forward pass of training itself, no second pass. They are kept in float64 (whole numbers
stay exact) and reduced at the same steps in every run, also at a checkpoint, so that a resumed run shows the very same
numbers as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import one_hot

from xlm.batching.packed_batch import OBJECTIVES, PackedBatch
from xlm.config.phases import Objective
from xlm.errors import UserError
from xlm.mixing.seen import Seen

# What is measured: an objective's own loss (of pieces; of pairs), then what heads beside it judge.
# rtd: the generator's pieces; rtd_replaced: of rtd_discriminator's tokens those that are not the text's.
MEASURES = (*OBJECTIVES, "nsp_sentence", "sop_sentence", "rtd_discriminator", "rtd_replaced")
MEASURE_CODE = {name: code for code, name in enumerate(MEASURES)}
_NOT_JUDGED = frozenset({"contrastive"})  # right or wrong does not come with its loss
_BLOCK = 1024  # predictions


@dataclass(frozen=True)
class WindowMeans:
    """What a stretch of steps showed, over all ranks."""

    steps: int
    loss: float | None
    objectives: Mapping[str, float]  # mean loss by measure
    accuracies: Mapping[str, float]  # by measure
    languages: Mapping[tuple[str, str], float]  # mean loss by (measure, language)
    language_accuracies: Mapping[tuple[str, str], float]  # by (measure, language)
    counts: Mapping[tuple[str, str], int]


class LossStatistics:
    """Sums of a window of steps, [measures, languages] losses, hits and counts, plus what was seen since step 0, by phase too."""

    def __init__(self, phases: tuple[str, ...], languages: tuple[str, ...], device: torch.device) -> None:
        self._phases, self.languages = phases, languages
        self._shape = (len(MEASURES), len(languages))
        self._device = device
        self._window = self._zeros()
        self._pending = self._zeros()
        # [phases, objectives, languages + 1], flat: tokens, and in the last column rows.
        self._seen_shape = (len(phases), len(OBJECTIVES), len(languages) + 1)
        self._seen = torch.zeros(math.prod(self._seen_shape), dtype=torch.float64, device=device)

    def _zeros(self) -> Tensor:
        # One flat vector, so that one all-reduce does: losses, hits, counts, then (loss of steps, steps).
        return torch.zeros(3 * self._shape[0] * self._shape[1] + 2, dtype=torch.float64, device=self._device)

    @torch.no_grad()
    def add(self, measure: Tensor, language: Tensor, losses: Tensor, correct: Tensor | None = None) -> None:
        """Count losses [P] of measures [P] and languages [P] (indices) in the step under way, and which were ``correct`` [P]."""
        sums, hits, counts = self._pending[:-2].view(3, *self._shape)
        # Products with one-hot rows instead of an indexed add: the latter has no fixed order on a GPU. In
        # blocks, since with thousands of languages the rows of all predictions together would be gigabytes.
        for first in range(0, len(losses), _BLOCK):
            block = slice(first, first + _BLOCK)
            of_measure = one_hot(measure[block], self._shape[0]).to(torch.float64)
            of_language = one_hot(language[block], self._shape[1]).to(torch.float64)
            sums += (of_measure * losses[block, None].detach().to(torch.float64)).T @ of_language
            counts += of_measure.T @ of_language
            if correct is not None:
                hits += (of_measure * correct[block, None]).T @ of_language

    @torch.no_grad()
    def add_step_loss(self, contribution: Tensor) -> None:
        """Add this rank's part of the step's loss; the parts of all ranks sum to the loss."""
        self._pending[-2] += contribution.detach().to(torch.float64)

    @torch.no_grad()
    def add_batch(self, phase: int, batch: PackedBatch) -> None:
        """Count the tokens and rows of a micro-batch as seen; a row is never split over micro-batches."""
        _, objectives, columns = self._seen_shape
        of_token = torch.repeat_interleave(batch.sequence_objective, batch.cu_seqlens.diff(), output_size=batch.tokens)
        of_row = torch.unique(batch.row_id * objectives + batch.sequence_objective) % objectives
        cells = torch.cat([of_token * columns + batch.language_ids, of_row * columns + columns - 1])
        counts = torch.bincount(cells, minlength=objectives * columns)
        self._seen[phase * len(counts) : (phase + 1) * len(counts)] += counts

    def commit_step(self, applied: bool) -> None:
        """Close the step under way; the losses of a step that was not applied are left out."""
        if applied:
            if _rank() == 0:
                self._pending[-1] += 1
            self._window += self._pending
        self._pending = self._zeros()

    def reduce(self) -> None:
        """Bring the sums of all ranks to rank 0, and zero the others', so that nothing counts twice."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return
        everything = torch.cat([self._window, self._seen])
        dist.all_reduce(everything)
        if _rank() != 0:
            everything.zero_()
        self._window, self._seen = everything[: len(self._window)].clone(), everything[len(self._window) :].clone()

    def take_window(self) -> WindowMeans:
        """Return the means since the last call and start a new window; meaningful on rank 0 after `reduce`."""
        *_, total, steps = self._window.tolist()
        sums, hits, counts = self._window[:-2].view(3, *self._shape).tolist()
        self._window = self._zeros()
        objectives: dict[str, float] = {}
        accuracies: dict[str, float] = {}
        languages: dict[tuple[str, str], float] = {}
        language_accuracies: dict[tuple[str, str], float] = {}
        by_count: dict[tuple[str, str], int] = {}
        for code, measure in enumerate(MEASURES):
            count = sum(counts[code])
            if not count:
                continue
            objectives[measure] = sum(sums[code]) / count
            if measure not in _NOT_JUDGED:
                accuracies[measure] = sum(hits[code]) / count
            for language, of_language, hit, counted in zip(self.languages, sums[code], hits[code], counts[code], strict=True):
                if counted:
                    languages[measure, language] = of_language / counted
                    by_count[measure, language] = int(counted)
                    if measure not in _NOT_JUDGED:
                        language_accuracies[measure, language] = hit / counted
        loss = total / steps if steps else None
        return WindowMeans(int(steps), loss, objectives, accuracies, languages, language_accuracies, by_count)

    def seen(self) -> Seen:
        """Return what was seen since step 0; over all ranks on rank 0 after `reduce`."""
        counts = self._seen.cpu().view(self._seen_shape)
        places = torch.nonzero(counts)
        tokens: dict[tuple[str, Objective, str], int] = {}
        rows: dict[tuple[str, Objective], int] = {}
        for (phase, objective, column), count in zip(places.tolist(), counts[places.unbind(1)].tolist(), strict=True):
            if column < len(self.languages):
                tokens[self._phases[phase], OBJECTIVES[objective], self.languages[column]] = int(count)
            else:
                rows[self._phases[phase], OBJECTIVES[objective]] = int(count)
        return Seen(tokens, rows)

    def state(self) -> dict[str, Any]:
        """Return the sums as JSON (floats survive it exactly); call `reduce` first."""
        return {"window": self._window.tolist(), "seen": self._seen.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up `state` on rank 0; the other ranks start at zero. Raises UserError, on all, for sums of another shape."""
        window, seen = (torch.tensor(state.get(name, ()), dtype=torch.float64, device=self._device) for name in ("window", "seen"))
        if (window.shape, seen.shape) != (self._window.shape, self._seen.shape):
            raise UserError(
                "the checkpoint to go on from is of another version of xlm, which counted differently what was seen; "
                "go on with that version, or delete the run's train folder to train anew."
            )
        if _rank() == 0:
            self._window, self._seen = window, seen


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0

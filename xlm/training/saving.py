"""Saving at step boundaries, while training waits or while it goes on; on all ranks or on none.

Every rank copies what it holds to CPU memory at the boundary, and a thread writes it, flushes it to disk and hashes it.
Ranks tell each other how far they are in the numbers that they exchange at every step anyway (`Saver.status`,
`Saver.advance`). When all have written, rank 0 lists the files, renames the folder in one atomic step and removes what need
not stay. Saving synchronously is the same with training waiting for it. What keeps any rank from writing ends training on
all of them with one sentence, and the checkpoints before stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import torch.distributed as dist
from safetensors import SafetensorError

from xlm.config.training import CheckpointSection
from xlm.errors import UserError, refused_by_system
from xlm.training.checkpoint import (
    FOLDER,
    FileRecord,
    checkpoint_step,
    complete_checkpoints,
    partial_folder,
    remove_partials,
)
from xlm.training.checkpoint_part import take_part
from xlm.training.distributed import PATIENCE_S, Process, gather_numbers, raise_everywhere
from xlm.training.engine import TrainingEngine
from xlm.training.visibility import make_visible, retain
from xlm.training.weights import ModelDescription

# What a rank says of its part; IDLE where no save is under way.
IDLE, WRITING, WRITTEN, FAILED = range(4)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class Saver:
    """Saves the checkpoints of a run; every rank has one, and calls the same methods at the same steps."""

    def __init__(self, engine: TrainingEngine, train_folder: Path, process: Process, section: CheckpointSection) -> None:
        self._engine, self._process, self._section = engine, process, section
        self._folder = train_folder / FOLDER
        self._flight: _Flight | None = None

    @property
    def status(self) -> int:
        """How far this rank is with the save under way: what `advance` has to hear of all ranks."""
        return IDLE if self._flight is None else self._flight.status

    def save(self, description: ModelDescription, loop_state: Mapping[str, Any]) -> None:
        """Save the state after ``description.step`` steps; returns when it stands, or once it is copied (``asynchronous``).

        ``loop_state`` is rank 0's JSON beside the weights. A save under way is finished first. Raises UserError on every
        rank where one cannot write.
        """
        self.wait()
        final = self._folder / f"step-{description.step:08d}"
        self._on_main(lambda: self._make_room(final), description.step)
        # Where training waits, there is no need of memory for a second optimizer state.
        part = take_part(self._engine, self._process, description, loop_state, copy=self._section.asynchronous)
        self._flight = _Flight(final, _Task(lambda: part.write(partial_folder(final))))
        if not self._section.asynchronous:
            self.wait()

    def advance(self, statuses: Sequence[int]) -> None:
        """Go on with the save under way, at a boundary where all ranks know the ``status`` of each, by rank."""
        if self._flight is None or WRITING in statuses:
            return
        if FAILED in statuses:
            self._give_up(self._flight, statuses.index(FAILED))
        if self._flight.parts_are_written:
            self._flight = None
        else:
            self._complete(self._flight)

    def wait(self) -> None:
        """Finish the save under way, if there is one; raises UserError on every rank where one could not write."""
        while self._flight is not None:
            self._flight.wait(PATIENCE_S)
            self.advance([status for (status,) in gather_numbers([self.status], self._engine.device)])

    def _make_room(self, final: Path) -> None:
        remove_partials(self._folder)
        partial_folder(final).mkdir(parents=True)

    def _complete(self, flight: _Flight) -> None:
        """Let rank 0 make the checkpoint visible now that every rank has written; it knows what each vouches for."""
        files = {name: record for of_rank in _gather_objects(flight.written()) for name, record in of_rank.items()}
        flight.parts_are_written = True
        if self._process.is_main:
            flight.task = _Task(lambda: self._make_visible(flight.final, files))

    def _make_visible(self, final: Path, files: Mapping[str, FileRecord]) -> dict[str, FileRecord]:
        make_visible(final, files)
        retain(final, self._section)
        return {}

    def _give_up(self, flight: _Flight, rank: int) -> None:
        self._flight = None
        problem = flight.problem if self._process.rank == rank else None
        if self._process.is_main:
            remove_partials(self._folder, ignore_errors=True)
        self._raise(problem, rank, checkpoint_step(flight.final))

    def _on_main(self, work: Callable[[], None], step: int) -> None:
        problem: Exception | None = None
        if self._process.is_main:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised on every rank
                problem = error
        if gather_numbers([int(problem is not None)], self._engine.device)[0][0]:
            self._raise(problem, 0, step)

    def _raise(self, problem: Exception | None, rank: int, step: int) -> None:
        raise_everywhere(as_sentence(problem, step, self._folder.parent), rank)


def save_checkpoint(
    engine: TrainingEngine,
    train_folder: Path,
    process: Process,
    description: ModelDescription,
    loop_state: Mapping[str, Any],
    keep_last: int,
) -> Path:
    """Save one checkpoint while all ranks wait, and return its folder; every rank must call this."""
    saver = Saver(engine, train_folder, process, CheckpointSection(keep_last=keep_last))
    saver.save(description, loop_state)
    saver.wait()
    return train_folder / FOLDER / f"step-{description.step:08d}"


def as_sentence(problem: Exception | None, step: int, train_folder: Path) -> Exception | None:
    """Return what the system refused as a UserError that says what is left; other problems as they are."""
    if isinstance(problem, UserError | OSError | SafetensorError):
        refused = str(problem) if isinstance(problem, UserError) else _refusal(problem, train_folder)
        if refused is not None:
            standing = complete_checkpoints(train_folder)
            left = (
                f"the one of step {checkpoint_step(standing[-1]):,} is left, and the same command goes on from it"
                if standing
                else "there is none before it, and the same command starts anew"
            )
            return UserError(f"the checkpoint of step {step:,} could not be written: {refused.rstrip('.')}. Training ends; {left}.")
    return problem


def _refusal(problem: OSError | SafetensorError, train_folder: Path) -> str | None:
    """Say what the system refused; safetensors has the number of its error in its text alone."""
    if isinstance(problem, OSError):
        number, where = problem.errno, problem.filename or train_folder
    else:
        match = _OS_ERROR.search(str(problem))
        number, where = int(match.group(1)) if match else None, train_folder
    return refused_by_system(number, where)


class _Task:
    """Work on a thread of its own: going on, done with what it gave, or failed."""

    def __init__(self, work: Callable[[], dict[str, FileRecord]]) -> None:
        self.given: dict[str, FileRecord] | None = None
        self.problem: Exception | None = None
        # A process that ends for another reason does not wait for the disk.
        self._thread = Thread(target=self._run, args=(work,), name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], dict[str, FileRecord]]) -> None:
        try:
            self.given = work()
        except Exception as problem:  # noqa: BLE001 - raised on every rank by `Saver.advance`
            self.problem = problem

    def wait(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    @property
    def status(self) -> int:
        if self._thread.is_alive():
            return WRITING
        return WRITTEN if self.problem is None else FAILED


@dataclass
class _Flight:
    """A save under way: first every rank writes its part, then rank 0 makes the folder visible."""

    final: Path
    task: _Task  # rank 0's is another once the parts are written; the others' stays done
    parts_are_written: bool = False

    @property
    def status(self) -> int:
        return self.task.status

    @property
    def problem(self) -> Exception | None:
        return self.task.problem

    def wait(self, timeout_s: float) -> None:
        self.task.wait(timeout_s)

    def written(self) -> dict[str, FileRecord]:
        if self.task.given is None:
            raise RuntimeError("this rank has not written its part")
        return self.task.given


def _gather_objects(own: dict[str, FileRecord]) -> list[dict[str, FileRecord]]:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [own]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    return everyone

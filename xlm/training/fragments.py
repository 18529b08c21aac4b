"""The optimizer's state in a checkpoint: pieces of parameters by name, in one file of each rank that wrote them.

``optimizer-rank-00001-of-00002.safetensors`` holds what rank 1 of 2 held: for every parameter a run [start, stop) of its flattened
numbers, and each moment of that run as tensor ``<moment>/<parameter>``. Nothing in it depends on how ranks, ZeRO stages or
DeepSpeed lay parameters out in memory: whoever knows a parameter's name finds any part of its moments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xlm.errors import UserError
from xlm.training.tensor_file import TensorFile

FORMAT = 1
STATE = "state"  # of the file's metadata: a JSON header
_NAME = re.compile(r"^optimizer-rank-(\d{5})-of-(\d{5})\.safetensors$")
Scalar = tuple[str, float | int]  # its type ("number" for Python's own), its value


@dataclass(frozen=True)
class Fragment:
    """A run of a parameter's flattened numbers and what the optimizer keeps of it."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]  # of the whole parameter
    moments: tuple[str, ...]  # tensors as long as the run; none before the first step
    scalars: Mapping[str, Scalar]  # such as the count of its steps


@dataclass(frozen=True)
class StateHeader:
    """What a rank's file says beside its numbers."""

    fragments: tuple[Fragment, ...]
    counters: Mapping[str, int]  # DeepSpeed's, the same on every rank
    loss_scale: Mapping[str, float | int] | None  # of fp16
    stage: int
    rank: int = 0
    world_size: int = 1
    format: int = FORMAT

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, file: TensorFile) -> StateHeader:
        """Take it from a file; raises UserError where it is damaged or of another version."""
        try:
            found: dict[str, Any] = json.loads(file.metadata[STATE])
            if found["format"] != FORMAT:
                raise UserError(
                    f"this optimizer state is of format {found['format']}, this version reads {FORMAT}; use the one that wrote it.",
                    file=file.path,
                )
            fragments = tuple(_fragment(one) for one in found.pop("fragments"))
            return cls(fragments=fragments, **found)
        except (KeyError, ValueError, TypeError):
            raise UserError("this optimizer state is damaged; use another checkpoint.", file=file.path) from None


def state_file(rank: int, world_size: int) -> str:
    """Return the name of a rank's file."""
    return f"optimizer-rank-{rank:05d}-of-{world_size:05d}.safetensors"


def expected_files(world_size: int) -> list[str]:
    """Return the names of all files that so many ranks write, rank 0's first."""
    return [state_file(rank, world_size) for rank in range(world_size)]


def tensor_name(moment: str, parameter: str) -> str:
    """Return under which name a moment of a parameter stands in a file."""
    return f"{moment}/{parameter}"


@dataclass(frozen=True)
class StoredParameter:
    """All fragments of one parameter, in order and without a gap, each with its file."""

    name: str
    shape: tuple[int, ...]
    moments: tuple[str, ...]
    scalars: Mapping[str, Scalar]
    pieces: tuple[tuple[Fragment, TensorFile], ...]

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return self.pieces[-1][0].stop

    def dtype(self, moment: str) -> str:
        """Return the type of a moment."""
        fragment, file = self.pieces[0]
        return file.tensors[tensor_name(moment, fragment.name)].dtype

    def read(self, moment: str, start: int, stop: int) -> bytearray:
        """Return the bytes of numbers ``start`` to ``stop`` of a moment, from as many files as hold them."""
        return bytearray().join(self._each(moment, start, stop, TensorFile.read))

    def chunks(self, moment: str) -> Iterator[bytearray]:
        """Yield a moment's bytes from its first number to its last, a few megabytes at a time."""
        for parts in self._each(moment, 0, self.elements, TensorFile.chunks):
            yield from parts

    def _each(self, moment: str, start: int, stop: int, take: Any) -> Iterator[Any]:  # noqa: ANN401 (of `TensorFile`)
        name = tensor_name(moment, self.name)
        for fragment, file in self.pieces:
            first, last = max(start, fragment.start), min(stop, fragment.stop)
            if first < last:
                yield take(file, name, first - fragment.start, last - fragment.start)


@dataclass(frozen=True)
class StoredState:
    """The optimizer's state of a checkpoint, whole: what all its ranks wrote."""

    parameters: Mapping[str, StoredParameter]
    counters: Mapping[str, int]
    loss_scale: Mapping[str, float | int] | None
    stage: int
    files: tuple[TensorFile, ...]

    @property
    def world_size(self) -> int:
        """How many ranks wrote it."""
        return len(self.files)

    @classmethod
    def open(cls, folder: Path) -> StoredState:
        """Read the headers of all files; raises UserError where a file, or a piece of a parameter, is missing or there twice."""
        files = _files(folder)
        headers = [StateHeader.read(file) for file in files]
        for rank, (file, header) in enumerate(zip(files, headers, strict=True)):
            if (header.rank, header.world_size) != (rank, len(files)):
                raise UserError("this file of a checkpoint says that it is of another rank; use another checkpoint.", file=file.path)
        found: dict[str, list[tuple[Fragment, TensorFile]]] = {}
        for file, header in zip(files, headers, strict=True):
            for fragment in header.fragments:
                found.setdefault(fragment.name, []).append((fragment, file))
        parameters = {name: _joined(name, sorted(pieces, key=lambda piece: piece[0].start), folder) for name, pieces in found.items()}
        first = headers[0]
        return cls(parameters, first.counters, first.loss_scale, first.stage, tuple(files))


def _files(folder: Path) -> list[TensorFile]:
    names = sorted(path.name for path in folder.glob("optimizer-rank-*.safetensors"))
    if not names:
        remark = ""
        if any(folder.glob("*_states.pt")):
            remark = " (it is of a version that kept DeepSpeed's own files; its weights can be used with start_from)"
        raise UserError(f"this checkpoint has no optimizer state{remark}; use another one.", file=folder)
    match = _NAME.match(names[0])
    world_size = int(match.group(2)) if match else len(names)
    expected = expected_files(world_size)
    for strange in sorted(set(names) - set(expected)):
        raise UserError(f"this file is not one of the {world_size} that the ranks of this checkpoint wrote.", file=folder / strange)
    return [TensorFile(folder / name) for name in expected]


def _fragment(found: Mapping[str, Any]) -> Fragment:
    scalars = {key: (str(kind), value) for key, (kind, value) in found["scalars"].items()}
    return Fragment(found["name"], found["start"], found["stop"], tuple(found["shape"]), tuple(found["moments"]), scalars)


def _joined(name: str, pieces: Sequence[tuple[Fragment, TensorFile]], folder: Path) -> StoredParameter:
    first = pieces[0][0]
    elements = 1
    for side in first.shape:
        elements *= side
    wrong = partial(UserError, file=folder)
    reached = 0
    for fragment, file in pieces:
        if fragment.start != reached:
            problem = "missing" if fragment.start > reached else "there twice"
            raise wrong(
                f"numbers {min(reached, fragment.start):,} to {max(reached, fragment.start):,} of the optimizer state of "
                f"'{name}' are {problem}; use another checkpoint."
            )
        reached = fragment.stop
        if (fragment.shape, fragment.moments, fragment.scalars) != (first.shape, first.moments, first.scalars):
            raise wrong(f"its ranks do not agree on the optimizer state of '{name}'; use another checkpoint.")
        for moment in fragment.moments:
            place = file.tensors.get(tensor_name(moment, name))
            if place is None or place.elements != fragment.stop - fragment.start:
                raise UserError(f"'{tensor_name(moment, name)}' is not as its header says; use another checkpoint.", file=file.path)
    if reached != elements:
        raise wrong(f"numbers {reached:,} to {elements:,} of the optimizer state of '{name}' are missing; use another checkpoint.")
    return StoredParameter(name, first.shape, first.moments, first.scalars, tuple(pieces))

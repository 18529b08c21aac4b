"""What one rank writes of a checkpoint: its state, and on rank 0 the weights and what is the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from xlm.runs.fingerprint import file_sha256
from xlm.runs.permissions import as_other_files
from xlm.runs.stage import write_json
from xlm.training.checkpoint import LOOP_STATE, PAIRS_STATE, FileRecord, flush_to_disk
from xlm.training.distributed import Process
from xlm.training.engine import TrainingEngine
from xlm.training.engine_state import RankState, snapshot, write_rank_state
from xlm.training.fragments import state_file
from xlm.training.weights import DESCRIPTION, WEIGHTS, ModelDescription, write_model_weights


@dataclass(frozen=True)
class MainPart:
    """What rank 0 writes beside its state."""

    weights: Mapping[str, Tensor]
    description: ModelDescription
    loop_state: Mapping[str, Any]
    pairs: Mapping[str, Tensor]  # the same on every rank

    def write(self, folder: Path) -> list[str]:
        """Write these files and return their names."""
        write_model_weights(folder, self.weights, self.description)
        write_json(folder / LOOP_STATE, self.loop_state)
        if self.pairs:
            save_file(dict(self.pairs), folder / PAIRS_STATE)
            as_other_files(folder / PAIRS_STATE)
        return [WEIGHTS, DESCRIPTION, LOOP_STATE, *([PAIRS_STATE] if self.pairs else [])]


@dataclass(frozen=True)
class Part:
    """What one rank writes of a checkpoint, in CPU memory; copied where the engine is to go on training."""

    state: RankState
    main: MainPart | None
    rank: int
    world_size: int

    def write(self, folder: Path) -> dict[str, FileRecord]:
        """Write all files through to the disk, and return what this rank vouches for."""
        write_rank_state(self.state, folder, self.rank, self.world_size)
        names = [state_file(self.rank, self.world_size), *([] if self.main is None else self.main.write(folder))]
        records: dict[str, FileRecord] = {}
        for name in names:
            flush_to_disk(folder / name)
            records[name] = {"size_bytes": (folder / name).stat().st_size, "sha256": file_sha256(folder / name)}
        return records


def take_part(
    engine: TrainingEngine, process: Process, description: ModelDescription, loop_state: Mapping[str, Any], *, copy: bool
) -> Part:
    """Take what this rank is to write; all ranks go through the weights together."""
    state = snapshot(engine, copy=copy)
    weights = {name: tensor for name, tensor in engine.full_weights() if process.is_main}
    main = None
    if process.is_main:
        pairs = {name: tensor.to("cpu", copy=True).contiguous() for name, tensor in engine.objective.pairs.state().items()}
        main = MainPart(weights, description, loop_state, pairs)
    return Part(state, main, process.rank, process.world_size)

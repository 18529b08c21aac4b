"""A written folder becomes a checkpoint, and one that need not stay goes, each in one atomic step (rank 0)."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from xlm.config.training import CheckpointSection
from xlm.errors import UserError
from xlm.runs.stage import write_json
from xlm.training.checkpoint import (
    COMPLETE,
    FileRecord,
    checkpoint_step,
    complete_checkpoints,
    flush_to_disk,
    partial_folder,
    validation_loss,
)
from xlm.training.retention import superfluous


def make_visible(final: Path, files: Mapping[str, FileRecord]) -> None:
    """List the files of a written folder in ``complete.json`` and rename it into place; UserError where some are not there."""
    partial = partial_folder(final)
    for name, record in files.items():
        path = partial / name
        found = path.stat().st_size if path.is_file() else None
        if found != record["size_bytes"]:
            raise UserError(
                f"a rank wrote {record['size_bytes']:,} bytes of this file, rank 0 finds {'none' if found is None else f'{found:,}'}; "
                "the run folder has to be one that all hosts share.",
                file=path,
            )
    write_json(partial / COMPLETE, {"step": checkpoint_step(final), "files": dict(files)})
    flush_to_disk(partial)
    if final.exists():
        take_away(final)  # passed over as damaged, or it would have been resumed from
    partial.rename(final)
    flush_to_disk(final.parent)


def retain(written: Path, section: CheckpointSection) -> None:
    """Remove what the section does not keep, now that ``written`` stands; a kill meanwhile leaves no half checkpoint to be seen."""
    standing = {checkpoint_step(path): path for path in complete_checkpoints(written.parent.parent)}
    losses = {step: validation_loss(path) if section.keep_best else None for step, path in standing.items()}
    for step in superfluous(losses, checkpoint_step(written), section):
        try:
            take_away(standing[step])
        except OSError as error:  # nothing is lost: training goes on, and the next save tries again
            print(f"warning: {standing[step]}: this checkpoint could not be removed ({error.strerror or error}).", file=sys.stderr)


def take_away(checkpoint: Path) -> None:
    """Remove a checkpoint: first out of sight in one step, then file by file."""
    doomed = checkpoint.with_name(f"{checkpoint.name}.{time.monotonic_ns()}.partial")
    checkpoint.rename(doomed)
    shutil.rmtree(doomed)

"""A folder that is complete or absent, and never written over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xlm.errors import UserError


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield where to write; on leaving without an error it becomes ``path`` by one rename. Raises UserError where that exists."""
    if path.exists():
        raise UserError("this exists already and is not written over; name another folder, or move it away.", file=path)
    partial = path.with_name(f".{path.name}.partial")
    if partial.exists():  # of a run that was killed
        shutil.rmtree(partial)
    try:
        partial.mkdir(parents=True)
    except OSError as problem:
        raise UserError(f"no folder can be made here ({problem.strerror}); name another one.", file=path) from None
    try:
        yield partial
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise

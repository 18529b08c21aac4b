"""One writer at a time for each stage of a run folder, so that two commands never delete each other's partial files.

The lock is an `flock`: the system lets go of it when its process ends, however it ends, so that a killed
stage blocks nobody. The empty file ``.lock-<folder>`` stays; it says nothing by being there.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xlm.errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system: there is no lock to take
    fcntl = None  # type: ignore[assignment]

# Some network file systems know no locks; work goes on there as it would without fcntl.
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def only_writer(folder: Path, stage: str) -> Iterator[None]:
    """Hold the lock of a stage's folder; raises UserError at once where another process holds it."""
    if fcntl is None:
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".lock-{folder.name}").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process is writing '{stage}' in this run folder; wait for it or use another --run-dir.", file=folder.parent
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
        yield

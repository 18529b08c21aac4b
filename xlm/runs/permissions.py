"""Files that others may read as they may read any file of this user."""

from __future__ import annotations

import os
from pathlib import Path


def as_other_files(path: Path) -> None:
    """Give a file the mode of an ordinary new one; safetensors writes files that nobody else can read."""
    mask = os.umask(0o077)  # the only way to ask for it is to set it
    os.umask(mask)
    path.chmod(0o666 & ~mask)

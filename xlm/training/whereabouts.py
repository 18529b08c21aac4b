"""Where in the code this rank is, for the others to know when they have waited for it in vain."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

WAITING = "waiting"  # for other ranks
_OWN = Path(__file__).parents[2]
_COLLECTIVES = ("torch", "distributed")


def whereabouts() -> str:
    """Return `WAITING` where the main thread is in a collective, else the innermost line of this project that it is in."""
    frames = _stack(sys._current_frames().get(threading.main_thread().ident or 0))
    if any(_is_collective(Path(frame.f_code.co_filename)) for frame in frames):
        return WAITING
    own = [frame for frame in frames if _OWN in Path(frame.f_code.co_filename).parents and "site-packages" not in frame.f_code.co_filename]
    for frame in own[:1] or frames[:1]:
        path = Path(frame.f_code.co_filename)
        shown = path.relative_to(_OWN) if own else path.name
        return f"{shown}:{frame.f_lineno} ({frame.f_code.co_name})"
    return ""


def _stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_collective(path: Path) -> bool:
    return path.parts[-3:-1] == _COLLECTIVES

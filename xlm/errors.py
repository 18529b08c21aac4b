"""One error type for everything a user can put right, and the door that prints it.

Promise 7: an error is one clear sentence (what was found, what is allowed, how to fix it, file and
line where there is one) and exit code 2. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

USER_ERROR_EXIT_CODE = 2
_WRITTEN_IN_PART = re.compile(r"\d+ requested and \d+ written")
# What the machine refuses and the user can put right, by the number the system gives it.
_REMEDIES = {
    errno.ENOSPC: "free some space, or use another folder",
    errno.EDQUOT: "free some of your quota, or use another folder",
    errno.EROFS: "use a folder that can be written, --run-dir for a run",
    errno.EACCES: "change its permissions, or use another folder",
    errno.ENOTDIR: "use another path, --run-dir for a run",
    errno.EISDIR: "name a file, not a folder",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f), or use another folder",
}


class UserError(Exception):
    """A mistake in the user's input, configuration or environment, said in one sentence."""

    def __init__(self, sentence: str, *, file: Path | str | None = None, line: int | None = None) -> None:
        where = ""
        if file is not None:
            where = f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(where + sentence)


class NotSupportedYetError(UserError):
    """A declared part of the design that this version does not carry out."""

    def __init__(self, what: str, instead: str, *, file: Path | str | None = None) -> None:
        super().__init__(f"{what} is not supported yet; {instead}.", file=file)


def suggest(found: str, allowed: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` when an allowed name is close to ``found``, else an empty string."""
    close = difflib.get_close_matches(found, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def refused_by_system(number: int | None, where: Path | str | None) -> str | None:
    """Say what the system refused by its error ``number`` and how to put it right; None where the user cannot."""
    if number is None or number not in _REMEDIES:
        return None
    return f"{f'{where}: ' if where else ''}{os.strerror(number).lower()}; {_REMEDIES[number]}."


def _number(error: OSError) -> int | None:
    """Return the system's number of an error; NumPy gives none where an array was written in part, which a full disk does."""
    return errno.ENOSPC if error.errno is None and _WRITTEN_IN_PART.fullmatch(str(error)) else error.errno


def exits_cleanly(main: Callable[[], None]) -> Callable[[], None]:
    """Decorate a script's ``main``: a `UserError` becomes its sentence on stderr and exit code 2.

    So does what the system refuses (a full disk, a folder that cannot be written). Ctrl-C exits with 130, as
    a shell expects, and prints what to do next instead of a traceback.
    """

    @functools.wraps(main)
    def wrapped() -> None:
        try:
            main()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(USER_ERROR_EXIT_CODE)
        except OSError as error:
            sentence = refused_by_system(_number(error), error.filename)
            if sentence is None:
                raise
            print(f"error: {sentence}", file=sys.stderr)
            sys.exit(USER_ERROR_EXIT_CODE)
        except KeyboardInterrupt:
            print("interrupted: run the same command again to continue.", file=sys.stderr)
            sys.exit(130)

    return wrapped

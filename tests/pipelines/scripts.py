"""A pipeline's script run in this process, as its command would."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def call(name, *arguments):
    """Run a pipeline's main with these arguments and return its exit code."""
    before = sys.argv
    sys.argv = [name, *map(str, arguments)]
    try:
        runpy.run_path(str(ROOT / "pipelines" / name), run_name="__main__")
    except SystemExit as error:
        return error.code
    finally:
        sys.argv = before
    return 0

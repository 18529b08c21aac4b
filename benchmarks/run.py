"""Run every benchmark, or those named, each in a process of its own, and print the ratios.

    python benchmarks/run.py            every benchmark
    python benchmarks/run.py data       one of them

A benchmark is a file in this folder with a ``main()`` that writes ``benchmarks/results/NAME.json``. What its
ratios are says its own first lines: most are our speed over a peer's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlm.errors import UserError, exits_cleanly, suggest

FOLDER = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"run", "results"}


def benchmark_names(folder: Path = FOLDER) -> list[str]:
    """Return the benchmarks of a folder: its Python files that define ``main()``."""
    found = (path for path in folder.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    return sorted(path.stem for path in found if "\ndef main(" in path.read_text(encoding="utf-8"))


def chosen(asked: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the benchmarks asked for, all where none is; raises UserError for a name that is none."""
    for name in asked:
        if name not in names:
            raise UserError(f"there is no benchmark '{name}'{suggest(name, names)}; there are: {', '.join(names) or 'none yet'}.")
    return list(asked) or list(names)


def run_benchmark(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Run one benchmark and return what it wrote, None where it failed or wrote nothing new."""
    result = folder / "results" / f"{name}.json"
    before = result.stat().st_mtime_ns if result.exists() else None
    finished = subprocess.run([sys.executable, str(folder / f"{name}.py")], check=False)
    if finished.returncode != 0 or not result.exists() or result.stat().st_mtime_ns == before:
        return None
    written: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return written


def ratio_lines(name: str, written: dict[str, Any] | None) -> list[str]:
    """Return one line a ratio, or that the benchmark failed."""
    if written is None:
        return [f"{name:<12} failed; its messages are above"]
    return [f"{name:<12} {label:<28} {ratio:8.2f}" for label, ratio in sorted(written["ratios"].items())]


@exits_cleanly
def main() -> None:
    """Run the benchmarks asked for and exit with 1 where one failed."""
    names = chosen(sys.argv[1:], benchmark_names())
    lines: list[str] = []
    failed = False
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        started = time.monotonic()
        written = run_benchmark(name)
        failed |= written is None
        lines += ratio_lines(name, written)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    print("\nratios (of what to what: the first lines of each benchmark)\n" + "\n".join(lines))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

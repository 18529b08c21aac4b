"""Where every benchmark leaves its figures: ``benchmarks/results/NAME.json``, with what they were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlm.runs.stage import write_json

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("datasets", "deepspeed", "mlflow", "numpy", "pyarrow", "sentencepiece", "torch", "transformers", "xlm")


def write_results(name: str, ratios: Mapping[str, float], raw: Mapping[str, Any], *, folder: Path = RESULTS) -> Path:
    """Write ``ratios`` (ours over the named peer's, higher is better) and both sides' ``raw`` figures; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    result = {
        "benchmark": name,
        "ratios": {label: float(ratio) for label, ratio in ratios.items()},
        "raw": dict(raw),
        "versions": versions(),
        "machine": machine(),
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_json(path, result)
    return path


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that figures depend on, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Return what the figures were measured on; nothing that names the machine itself."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }

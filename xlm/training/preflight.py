"""What is checked before step 0: that all ranks have the same code, libraries, recipe, data and run folder, and enough room.

A rank that differs would train something else without a word, or stop in the middle, so rank 0 compares what every rank
has (`RollCall.meet`) and shows a table of what differs. Then the network is tried with a small sum.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.runs.fingerprint import code_fingerprint
from xlm.runs.free_memory import free_memory
from xlm.training.deepspeed_config import read_deepspeed_file
from xlm.training.distributed import Process, gather_numbers, tell_all
from xlm.training.lost_ranks import named
from xlm.training.meeting import Member
from xlm.training.offload import is_offloaded

# All that a rank runs in training; an edit elsewhere changes nothing here.
ROOMS = ("config", "runs", "tracking", "storage", "vocab", "shards", "mixing", "batching", "model", "training")
PACKAGES = ("torch", "deepspeed", "numpy", "safetensors", "pyarrow", "sentencepiece")
TOKEN = ".ranks"  # of the run folder: rank 0 writes it, the others find it there if the folder is shared
COMMIT = "commit"  # shown beside code, which is what counts
SUM_TOKENS = 1 << 20  # four megabytes of fp32
# Times of files and logs stand side by side; more than that confuses whoever reads them.
CLOCK_S = 5.0


class Preflight:
    """What this rank has, and on rank 0 what all have; made before the ranks meet."""

    def __init__(self, recipe: Recipe, inputs: Mapping[str, str], deepspeed_config: Path, folder: Path, process: Process) -> None:
        """Take fingerprints of what was read as ``inputs``, and the run's folder."""
        self._process = process
        self._recipe, self._inputs, self._deepspeed, self._folder = recipe, inputs, deepspeed_config, folder
        if process.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / TOKEN).write_text(uuid.uuid4().hex, encoding="utf-8")

    def facts(self) -> dict[str, str]:
        """Return what this rank has, by name; all but the commit has to be the same everywhere."""
        device = self._process.device()
        check_device(device)
        # Ranks of one host have one copy of the code, which somebody may be editing.
        code = {"code": code_fingerprint(*ROOMS), COMMIT: _commit()} if self._process.spans_hosts else {}
        return {
            **code,
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "run folder": self._token(),
            **dict(_flat(self._recipe.model_dump(mode="json"))),
            **dict(_flat(read_deepspeed_file(self._deepspeed), "DeepSpeed: ")),
            **self._inputs,
        }

    def compare(self, members: Sequence[Member]) -> None:
        """Raise a UserError where a rank has something else than most, after a table of all that differs; rank 0's task."""
        (self._folder / TOKEN).unlink(missing_ok=True)
        found = different(members)
        if not found:
            return
        print(table(found), file=sys.stderr)
        raise UserError(_sentence(found))

    def _token(self) -> str:
        try:
            return (self._folder / TOKEN).read_text(encoding="utf-8")
        except OSError:
            return f"{self._folder.absolute()} is not rank 0's"


def check_device(device: torch.device) -> None:
    """Raise a UserError where a host has fewer GPUs than ranks."""
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"there is no GPU {device.index} here, of {torch.cuda.device_count()}; start as many ranks as there are GPUs (slots= in a "
            "hostfile, --num_accelerators)."
        )


def different(members: Sequence[Member]) -> list[tuple[str, Member, str, str]]:
    """Return (what, who, what it has, what most have) for all that is not the same; where two are as many, rank 0's is meant."""
    found = []
    for name in dict.fromkeys(name for member in members for name in member.facts):
        if name == COMMIT:
            continue
        have = [member.facts.get(name, "-") for member in members]
        most = max(Counter(have).items(), key=lambda item: (item[1], item[0] == have[0]))[0]
        found += [(name, member, value, most) for member, value in zip(members, have, strict=True) if value != most]
    return found


def table(found: Sequence[tuple[str, Member, str, str]]) -> str:
    """Return the lines of a table of `different`, with commits beside code."""
    rows = [("what", "host", "rank", "has", "most have")]
    for name, member, value, most in found:
        commit = f" ({member.facts[COMMIT]})" if name == "code" and COMMIT in member.facts else ""
        rows.append((name, member.host, str(member.rank), value + commit, most))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _sentence(found: Sequence[tuple[str, Member, str, str]]) -> str:
    name, _, value, most = found[0]
    who = list({member.rank: member for what, member, has, _ in found if (what, has) == (name, value)}.values())
    more = len({what for what, *_ in found}) - 1
    if name == "run folder":
        what = "does not see the run folder of rank 0, which has to lie on storage that all hosts share"
    else:
        what = f"has {name} {value}, most have {most}"
    also = f" ({more} more in the table above)" if more else ""
    return f"{named(who)} {what}{also}; training needs the same on every host: put it right there and start again."


def check_room(members: Sequence[Member], process: Process, *, parameters: int, zero: Mapping[str, Any], folder: Path) -> None:
    """Raise a UserError on every rank where a host lacks memory for what training will allocate, or the run folder space.

    The least that is to come: fp32 gradients and AdamW's two moments, of which each rank holds its part from ZeRO stages 2 and
    1 (Rajbhandari et al. 2020), and a checkpoint of weights and moments. They lie on the GPU where there is one and ``zero``,
    DeepSpeed's section, does not offload them. Every rank must call this.
    """
    shares, stage = process.world_size, int(zero["stage"])
    needed = 4 * parameters // (shares if stage >= 2 else 1) + 8 * parameters // (shares if stage >= 1 else 1)
    device = process.device()
    on_gpu = device.type == "cuda" and not is_offloaded(zero, "offload_optimizer")
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else free_memory()
    for first, (least, ranks) in _by_host(gather_numbers([free, process.local_world_size], device), members).items():
        if least < needed * (1 if on_gpu else ranks):
            raise UserError(
                f"{first} has {_gigabytes(least)} of free memory{' on a GPU' if on_gpu else ''}, and gradients and moments alone take "
                f"{_gigabytes(needed)} a rank; free some, start fewer ranks there, or share more among them (a higher ZeRO stage)."
            )
    space = tell_all(shutil.disk_usage(folder).free if process.is_main else 0)
    if space < (wanted := 12 * parameters):
        raise UserError(
            f"{_gigabytes(space)} are free, and a checkpoint takes {_gigabytes(wanted)}; free some space, or use another --run-dir.",
            file=folder,
        )


def _by_host(numbers: Sequence[Sequence[int]], members: Sequence[Member]) -> dict[str, tuple[int, int]]:
    """Return, by host, the least free memory that its ranks see, and how many they are."""
    found: dict[str, tuple[int, int]] = {}
    for rank, (free, ranks) in enumerate(numbers):
        host = members[rank].host if members else "this machine"
        found[host] = (min(free, found.get(host, (free, 0))[0]), ranks)
    return found


def try_network(members: Sequence[Member], device: torch.device) -> str | None:
    """Sum numbers over all ranks and compare clocks; every rank must call this. Returns rank 0's line, None elsewhere.

    Raises UserError on every rank where the sum is wrong.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = torch.full((SUM_TOKENS,), float(rank + 1), device=device)
    dist.all_reduce(own[:1].clone())  # connects
    began = time.perf_counter()
    dist.all_reduce(own)
    if device.type == "cuda":
        torch.cuda.synchronize()
    took = time.perf_counter() - began
    clocks = [torch.zeros(1, dtype=torch.float64, device=device) for _ in range(ranks)]
    dist.all_gather(clocks, torch.tensor([time.time()], dtype=torch.float64, device=device))
    wrong = torch.tensor([float(bool((own != ranks * (ranks + 1) / 2).any()))], device=device)
    dist.all_reduce(wrong)
    if wrong.item():
        raise UserError("numbers summed over all ranks come out wrong; check the network and its drivers (NCCL_DEBUG=INFO tells more).")
    if rank != 0:
        return None
    late = {member.host: clock.item() - clocks[0].item() for member, clock in zip(members, clocks, strict=True)}
    off = "".join(f"; the clock of {host} is off by {by:+.0f} s" for host, by in late.items() if abs(by) > CLOCK_S)
    return f"{ranks} ranks on {named(members)}; 4 MB summed over them in {1000 * took:.0f} ms{off}."


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:  # noqa: ANN401 (JSON)
    """Return (dotted key, value) of nested settings."""
    if isinstance(value, Mapping) and value:
        joint = "" if not name or name.endswith(" ") else "."
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{name}{joint}{key}")]
    if isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        return [pair for place, inner in enumerate(value) for pair in _flat(inner, f"{name}.{place}")]
    return [(name, json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value)]


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    asked = [git, "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):  # a slow file system, for a value that is only shown
        return "unknown"
    return done.stdout.strip() or "unknown"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"

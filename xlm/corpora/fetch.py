"""Fetching wheels with the user's own pip, into a cache, checked before they are ever opened.

pip, not a downloader of our own: it already knows the user's index, mirror, proxy and certificates.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from xlm.corpora.manifest import WheelSource
from xlm.errors import UserError
from xlm.runs.fingerprint import file_sha256

TIMEOUT_S = 15
_ERROR_LINE = re.compile(r"^(?:ERROR|error): *(.+)$", re.MULTILINE)
# What pip says when it saw no index at all, as opposed to an index without this version.
_UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|timed out|Name or service not known|Temporary failure in name resolution"
    r"|Failed to establish|Network is unreachable|Connection refused|Max retries exceeded|Could not fetch URL|connection (?:error|broken)",
    re.IGNORECASE,
)


def wheel_folder(cache: Path) -> Path:
    """Return the folder in which fetched wheels are kept, and into which they may be put by hand."""
    return cache / "wheels"


def fetch_wheel(source: WheelSource, cache: Path) -> Path:
    """Return the path of a source's wheel in ``cache``, downloading it if it is not there.

    Raises UserError for a checksum that differs (naming both), and for a download that failed (naming
    the package and the folder where the file may be placed by hand).
    """
    folder = wheel_folder(cache)
    cached = _cached(source, folder)
    if cached is not None:
        return cached
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as temporary:
            _pip_download(source, Path(temporary), folder)
            found = sorted(Path(temporary).glob("*.whl"))
            if len(found) != 1:
                raise UserError(f"pip downloaded {len(found)} wheels for {source.name}=={source.version} where one was expected.")
            _check(source, found[0], f"the wheel that pip downloaded for {source.name}=={source.version}", shown=None)
            return found[0].replace(folder / found[0].name)
    except OSError as error:
        raise UserError(f"the cache folder cannot be written ({error.strerror}); set XLM_CACHE to another folder.", file=folder) from None


def _cached(source: WheelSource, folder: Path) -> Path | None:
    """Return the wheel of this name and version in the cache; a UserError if it is not the declared file."""
    stem = re.sub(r"[-_.]+", "_", source.name).lower()
    for path in sorted(folder.glob("*.whl")):
        parts = path.name.split("-")
        if len(parts) >= 5 and re.sub(r"[-_.]+", "_", parts[0]).lower() == stem and parts[1] == source.version:
            _check(source, path, "this cached wheel", shown=path)
            return path
    return None


def _check(source: WheelSource, path: Path, what: str, shown: Path | None) -> None:
    found = file_sha256(path)
    if found != source.sha256:
        raise UserError(
            f"{what} has SHA-256 {found}, but the manifest declares {source.sha256} for source '{source.name}'; "
            "it is not the declared file: remove it if it is in the cache, or correct the manifest.",
            file=shown,
        )


def pip_command(source: WheelSource, destination: Path) -> list[str]:
    """Return the command that downloads a source's wheel to ``destination``."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", *patience(), "--progress-bar", "off"]
    command += ["--python-version", source.python_version]
    if source.platform is not None:
        command += ["--platform", source.platform]
    if source.implementation is not None:
        command += ["--implementation", source.implementation]
    return [*command, "--dest", str(destination), f"{source.name}=={source.version}"]


@functools.cache
def patience() -> tuple[str, ...]:
    """Return options that make pip give an index up soon, but for those that the user's own pip configuration sets."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, errors="replace", check=False)
    options: tuple[str, ...] = ()
    if not re.search(r"^\S*\.retries=", listed.stdout, re.MULTILINE):
        options += ("--retries", "1")
    if not re.search(r"^\S*\.(?:default-)?timeout=", listed.stdout, re.MULTILINE):
        options += ("--timeout", str(TIMEOUT_S))
    return options


def _pip_download(source: WheelSource, destination: Path, folder: Path) -> None:
    print(f"fetching {source.name} {source.version} (kept in {folder})", file=sys.stderr, flush=True)
    done = subprocess.run(pip_command(source, destination), capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    wanted = f"{source.name}=={source.version}"
    by_hand = f"or put its wheel into {folder} by hand"
    if "No module named pip" in done.stderr:
        raise UserError(f"{wanted} cannot be fetched, because pip is not installed beside {sys.executable}; install pip, {by_hand}.")
    if _UNREACHABLE.search(done.stderr):
        raise UserError(
            f"{wanted} could not be fetched, because no Python package index was reachable; "
            f"check the network and pip's configuration, {by_hand}."
        )
    reasons = _ERROR_LINE.findall(done.stderr) or [done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"]
    reason = reasons[-1].strip().rstrip(".")
    raise UserError(
        f"{wanted} could not be fetched ({reason}); a Python package index that has it must be reachable "
        f"and pip configured for it, {by_hand}."
    )

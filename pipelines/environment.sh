#!/usr/bin/env bash
# Make the virtual environment named in $1 from requirements.lock, unless it already is that.
# The stamps are written last, so that a killed install leaves nothing that looks complete: one for the
# packages (a new lock makes everything anew), one for the project itself (a new pyproject.toml only
# registers it again).
set -euo pipefail
venv="${1:?usage: environment.sh FOLDER}"
python="${PYTHON:-python3}"
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
command -v "$python" >/dev/null || { say "error: '$python' was not found; install Python 3.11 or newer, or set PYTHON=..."; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { say "error: $("$python" --version) found; Python 3.11 or newer is needed (set PYTHON=...)."; exit 2; }
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    { say "error: Python's venv module is missing; install it (Debian: apt-get install python3-venv)."; exit 2; }

hash_of() { sha256sum | cut -d' ' -f1; }
packages="$( { cat requirements.lock; "$python" --version; pwd; } | hash_of)"
project="$( { cat pyproject.toml; printf '%s' "$packages"; } | hash_of)"
holds() { [ -f "$venv/$1" ] && [ "$(cat "$venv/$1")" = "$2" ]; }
# Its own python must start: the one it was made from may have been removed.
packages_current() { holds packages.stamp "$packages" && "$venv/bin/python" -c '' 2>/dev/null; }

if packages_current && holds project.stamp "$project"; then exit 0; fi
exec 9>"$venv.lock"
if command -v flock >/dev/null; then
    flock --nonblock 9 || { say "waiting for another make that is installing into $venv"; flock 9; }
fi

pip() { "$venv/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }
if ! packages_current; then
    say "making $venv from requirements.lock (about 2 GB and two minutes; a CUDA build of torch takes more)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    # Byte code of what is used is made at the first import; of everything it would take another minute.
    pip install --requirement requirements.lock --no-compile || {
        say "error: pip could not install requirements.lock; check that a Python package index can be reached and that the disk has room (pip's own message is above)."
        exit 2
    }
    printf '%s\n' "$packages" > "$venv/packages.stamp"
fi
if ! holds project.stamp "$project"; then
    pip install --no-deps --no-build-isolation --editable .
    printf '%s\n' "$project" > "$venv/project.stamp"
fi

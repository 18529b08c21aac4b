#!/usr/bin/env bash
# Make the virtual environment named in $1 from requirements.lock, unless it already is that.
# The stamp is written last, so that a killed install leaves nothing that looks complete.
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

stamp="$( { cat requirements.lock pyproject.toml; "$python" --version; pwd; } | sha256sum | cut -d' ' -f1)"
if [ -f "$venv/stamp" ] && [ "$(cat "$venv/stamp")" = "$stamp" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi
exec 9>"$venv.lock"
if command -v flock >/dev/null; then flock 9; fi
[ -f "$venv/stamp" ] && [ "$(cat "$venv/stamp")" = "$stamp" ] && exit 0  # another make built it meanwhile

say "making $venv from requirements.lock (about 2 GB and two minutes; a CUDA build of torch takes more)"
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.lock ||
    { say "error: pip could not install requirements.lock; check that a Python package index can be reached (pip's own message is above)."; exit 2; }
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . 
printf '%s\n' "$stamp" > "$venv/stamp"

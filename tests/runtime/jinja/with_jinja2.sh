#!/usr/bin/env bash
# Runs a script beside this one with the Python that has jinja2: MOEPACK_TEST_PYTHON, else
# build/venv, else python3. Its exit status is the script's; 77 is "skipped".
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
script="$here/$1"
shift
python="${MOEPACK_TEST_PYTHON:-$here/../../../build/venv/bin/python3}"
[[ -x $python ]] || python=python3
exec "$python" -B "$script" "$@"

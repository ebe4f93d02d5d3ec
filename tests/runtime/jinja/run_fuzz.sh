#!/usr/bin/env bash
# Runs jinja_fuzz.py with the Python that has jinja2: MOEPACK_TEST_PYTHON, else build/venv, else
# python3. Its exit status is the script's; 77 is "skipped".
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${MOEPACK_TEST_PYTHON:-$here/../../../build/venv/bin/python3}"
[[ -x $python ]] || python=python3
exec "$python" -B "$here/jinja_fuzz.py" "$@"

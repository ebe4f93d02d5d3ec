"""Packages from PyPI for tests, which a checkout need not have.

They are looked for in the interpreter that runs, then in the one that MOEPACK_TEST_PYTHON names (an
interpreter, or the folder of a virtual environment), then in build/venv, which
`scripts/install_deps.sh --all` makes. Where they are missing the test says so and ends with 77.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

SKIPPED = 77


def _interpreters():
    named = os.environ.get("MOEPACK_TEST_PYTHON")
    folders = [Path(named)] if named else [Path(__file__).resolve().parents[2] / "build" / "venv"]
    for place in folders:
        yield place / "bin" / "python3" if place.is_dir() else place


def _has(interpreter, packages):
    code = "import importlib.util,sys;sys.exit(any(map(lambda p: importlib.util.find_spec(p) is None,sys.argv[1:])))"
    try:
        done = subprocess.run([interpreter, "-c", code, *packages], check=False, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def require(*packages):
    """Comes back in an interpreter that has the packages, or does not come back."""
    if all(importlib.util.find_spec(p) is not None for p in packages):
        return
    if os.environ.get("MOEPACK_TEST_REEXECUTED") is None:
        for interpreter in _interpreters():
            if _has(interpreter, packages):
                os.environ["MOEPACK_TEST_REEXECUTED"] = "1"
                os.execv(interpreter, [str(interpreter), "-B", *sys.argv])
    print(f"SKIPPED: no Python here has {', '.join(packages)}. Get them by scripts/install_deps.sh --all "
          "(build/venv), or name an interpreter that has them in MOEPACK_TEST_PYTHON.")
    sys.exit(SKIPPED)

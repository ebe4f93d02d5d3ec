"""Chromium through playwright, or the reason why there is none."""

import os
import shutil
import sys
from pathlib import Path

SKIPPED = 77  # the exit status that ctest counts as skipped
ROOT = Path(__file__).resolve().parents[2]


def python_with_playwright():
    """Starts this program again under the Python of the tests' virtual environment, if there is one."""
    if os.environ.get("MOEPACK_TEST_PYTHON_TRIED"):
        return
    python = Path(os.environ.get("MOEPACK_TEST_PYTHON", ROOT / "build" / "venv" / "bin" / "python"))
    if python.is_file():
        os.environ["MOEPACK_TEST_PYTHON_TRIED"] = "1"
        os.execv(python, [str(python), "-B", *sys.argv])


def skip(reason):
    print(f"SKIPPED: {reason}; scripts/install_deps.sh --all installs it")
    sys.exit(SKIPPED)


def start_playwright():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        python_with_playwright()
        skip("playwright (PyPI) is not installed")
    return sync_playwright()


def chromium_path():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    return skip("chromium is not installed")


def launch(playwright):
    return playwright.chromium.launch(
        executable_path=chromium_path(),
        args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"])

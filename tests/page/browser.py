"""Chromium through playwright; where one of them is missing, the test says so and ends with 77."""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
import test_packages  # noqa: E402


def start_playwright():
    test_packages.require("playwright")
    from playwright.sync_api import sync_playwright
    return sync_playwright()


def chromium_path():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    print("SKIPPED: chromium is not installed; scripts/install_deps.sh --all installs it")
    return sys.exit(test_packages.SKIPPED)


def launch(playwright):
    return playwright.chromium.launch(
        executable_path=chromium_path(),
        args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"])

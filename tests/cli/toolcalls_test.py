#!/usr/bin/env python3
"""All 64 tool calls of a trained model, exact, through convert and the committed scorer."""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--scorer", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    root = os.environ.get("MOEPACK_TEST_MODELS", "")
    checkpoint = Path(root) / args.model
    if not root or not checkpoint.exists():
        print(f"SKIPPED: needs {args.model}; set MOEPACK_TEST_MODELS to the folder that holds it")
        return 77
    with tempfile.TemporaryDirectory(prefix="moepack-toolcalls-") as scratch:
        model = Path(scratch) / "model"
        subprocess.run([args.program, "convert", checkpoint, "-o", model, "--quiet"], check=True)
        return subprocess.run(
            [sys.executable, "-B", args.scorer, model, checkpoint / "golden" / "toolcalls.jsonl",
             "--moepack", args.program, "--min-exact", "64", "--min-text", "64"],
            check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

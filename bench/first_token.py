#!/usr/bin/env python3
"""Measures how long moepack run takes until its first token, against reading the residents once.

    bench/first_token.py --program build/release/bin/moepack --model MODEL [--other moepack-before]

Programs run in turn, each as a process of its own, with one prompt; the time ends with the first
byte of text on stdout. Reading the residents once is one thread that reads their files in blocks of
a mebibyte into the same memory, so it is the time of the system's cache alone. A first round, which
brings the model there, is not counted. Medians, with the least and the most.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BLOCK = 1 << 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="moepack")
    parser.add_argument("--other", action="append", default=[], help="another moepack, in turn")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--prompt", default="Once")
    parser.add_argument("--flags", default="", help="more flags for moepack run")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def resident_files(model):
    manifest = json.loads((model / "model_weights.json").read_text())
    names = [entry["file"] for entry in manifest.get("files", [])] or ["model_weights.bin"]
    return [model / name for name in names]


def reading_seconds(files):
    memory = memoryview(bytearray(BLOCK))
    start = time.perf_counter()
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(memory):
                pass
    return time.perf_counter() - start


def first_token_seconds(program, args):
    words = [program, "run", str(args.model), "-p", args.prompt, "-n", "8", "--ignore-eos",
             *args.flags.split()]
    start = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = process.stdout.read(1)
        seconds = time.perf_counter() - start
        _, errors = process.communicate()
    if process.returncode != 0 or not first.strip(b"\n"):
        sys.exit(f"{program}: no text; {errors.decode(errors='replace')[-500:]}")
    return seconds


def text(seconds):
    return (f"{1e3 * statistics.median(seconds):.0f} ms "
            f"({1e3 * min(seconds):.0f}–{1e3 * max(seconds):.0f})")


def main():
    args = parse_arguments()
    files = resident_files(args.model)
    programs = [args.program, *args.other]
    measured = {name: [] for name in [*programs, ""]}
    for number in range(args.rounds + 1):
        for name in measured:
            seconds = first_token_seconds(name, args) if name else reading_seconds(files)
            if number > 0:
                measured[name].append(seconds)
    size = sum(path.stat().st_size for path in files)
    reading = statistics.median(measured[""])
    print(f"reading {size / 1e9:.3f} GB of residents once: {text(measured[''])}")
    for name in programs:
        more = statistics.median(measured[name]) - reading
        print(f"{name}: first token after {text(measured[name])}: {1e3 * more:+.0f} ms")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""bench/compare_engines.py with programs in the engines' places whose speeds are known beforehand
and that note in which order they are called."""
import subprocess
import sys
import tempfile
from pathlib import Path

COMPARE = Path(__file__).resolve().parents[2] / "bench" / "compare_engines.py"

# The speed of run i is FACTOR * (10, 30, 20)[i]; moepack alone tells more.
ENGINE = r'''#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
name, args = pathlib.Path(__file__).name, sys.argv[1:]
log = here / "calls.txt"
calls = log.read_text().split() if log.exists() else []
log.write_text(" ".join(calls + [name]))
if "--fail" in args:
    sys.exit("this engine is broken")
value = lambda flag: args[args.index(flag) + 1]
factor = {"moepack": 3.0, "one": 2.0, "two": 4.0}[name]
speed = factor * (10, 30, 20)[calls.count(name) % 3]
rows = []
for prompt, generated in ((int(value("-p")), 0), (0, int(value("-n")))):
    if name == "two" and generated:
        continue
    row = {"n_prompt": prompt, "n_gen": generated, "n_threads": int(value("-t")), "avg_ts": speed}
    if name == "moepack":
        assert args[0] == "bench" and value("--cache-mb") == "77"
        row.update(n_depth=0, hit_percent=99.5, cpu_info="A Processor", read_rate_gb_s=speed,
                   share_of_read_rate=None if prompt else 0.25, model_type="tiny q4",
                   model_size=2500000000, kernels="avx2", activations="f32")
    rows.append(row)
noise = "[info] 3 threads [0, 1, 2] of {}\n[1, 2]\nloading...\n"
warned = json.dumps(rows, indent=2).replace("},", "},\nWARNING: slow [memory] {", 1)
print(json.dumps(rows) if name == "moepack" else noise + warned + "\n[done]")
'''


def main():
    failures = []

    def expect(condition, text):
        if not condition:
            failures.append(text)

    with tempfile.TemporaryDirectory(prefix="moepack-compare-") as scratch:
        here = Path(scratch)
        for name in ("moepack", "one", "two"):
            (here / name).write_text(ENGINE)
            (here / name).chmod(0o755)
        own = [sys.executable, "-B", COMPARE, "--program", here / "moepack", "--model",
               here / "model", "--flags=--cache-mb 77", "-p", "8", "-n", "4", "-t", "2"]
        done = subprocess.run([*own, "--rounds", "3", "--peer", f"one={here}/one -m x/model.gguf",
                               "--peer", f"two={here}/two"], capture_output=True, text=True,
                              check=False)
        expect(done.returncode == 0, done.stderr)
        expect((here / "calls.txt").read_text() == "moepack one two two one moepack moepack one two",
               "order of runs")
        lines = done.stdout.splitlines()
        expect("A Processor" in lines[0] and "30.0–90.0 GB/s with 2 threads" in lines[0]
               and "2.50 GB" in lines[0], f"machine: {lines[0]}")
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in lines if line.startswith("| 2 ")]
        expect(rows == [["2", "pp8", "60.00 (30.00–90.00)", "99.5", "-", "40.00 (20.00–60.00)",
                         "1.50", "80.00 (40.00–120.00)", "0.75"],
                        ["2", "tg4", "60.00 (30.00–90.00)", "99.5", "25.0", "40.00 (20.00–60.00)",
                         "1.50", "-", "-"]], f"table: {rows}")
        expect(str(here) not in done.stdout, "a path of this machine")
        broken = subprocess.run([*own, "--rounds", "1", "--peer", f"one={here}/one --fail"],
                                capture_output=True, text=True, check=False)
        expect(broken.returncode != 0 and "this engine is broken" in broken.stderr, "a broken peer")
        silent = here / "silent"
        silent.write_text("#!/bin/sh\necho '[1, 2] and [nothing else'\n")
        silent.chmod(0o755)
        mute = subprocess.run([*own, "--rounds", "1", "--peer", f"one={silent}"],
                              capture_output=True, text=True, check=False)
        expect(mute.returncode != 0 and "no JSON list of tests" in mute.stderr, "a peer without rows")
        unnamed = subprocess.run([*own, "--peer", "llama-bench"], capture_output=True, text=True,
                                 check=False)
        expect(unnamed.returncode != 0 and "NAME=COMMAND" in unnamed.stderr, "a peer without a name")
    for failure in failures:
        print("FAILED:", failure)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

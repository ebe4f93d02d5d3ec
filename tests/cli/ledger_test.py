#!/usr/bin/env python3
"""`inspect` of a pack with a quality ledger: every number against Python's own statistics.

The ledger is made here from a seed and written into the report of a converted pack.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

METHODS = ["rtn", "clip", "grid", "gptq"]
PROJECTIONS = ["gate_proj", "up_proj", "down_proj"]
STARVED = 64


def make_ledger(rng, layers, experts):
    """-> (ledger, one row a matrix: layer, expert, projection, method, samples, error, before,
    after)"""
    ledger = {"error": "output", "methods": METHODS, "layers": []}
    rows = []
    for layer in range(layers):
        samples = [rng.choice([0, 5, 63, 64, 500, 4000]) for _ in range(experts)]
        entry = {"layer": layer, "samples": samples}
        for projection in PROJECTIONS:
            columns = {"method": [], "before": [], "after": []}
            weight_error = [e for e in range(experts) if samples[e] == 0]
            for expert in range(experts):
                method = 2 if samples[expert] == 0 else rng.randrange(4)
                before = float(f"{rng.uniform(0.1, 0.9):.4g}")
                after = float(f"{before * rng.uniform(0.3, 1):.4g}")
                for name, value in (("method", method), ("before", before), ("after", after)):
                    columns[name].append(value)
                error = "weight" if expert in weight_error else "output"
                rows.append((layer, expert, projection, METHODS[method], samples[expert], error,
                             before, after))
            if weight_error:
                columns["weight_error"] = weight_error
            entry[projection] = columns
        ledger["layers"].append(entry)
    return ledger, rows


def inspect(program, path, *flags):
    done = subprocess.run([program, "inspect", path, *flags], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode("utf-8")


def close(found, expected):
    return abs(found - expected) <= 5.1e-4 * abs(expected)  # shown with four digits


def check(condition, what):
    if not condition:
        raise SystemExit(f"ledger_test: {what}")


def check_means(quality, rows):
    for projection in PROJECTIONS:
        of = [r for r in rows if r[2] == projection and r[5] == "output"]
        mean = quality[projection]
        check(mean["matrices"] == len(of), f"{projection}: {mean}")
        check(close(mean["mean_before"], statistics.fmean(r[6] for r in of)), f"{projection} before")
        check(close(mean["mean_after"], statistics.fmean(r[7] for r in of)), f"{projection} after")
    aside = [r for r in rows if r[5] == "weight"]
    mean = quality["without_held_out_tokens"]
    check(mean["matrices"] == len(aside) and aside, f"aside: {mean}")
    check(close(mean["mean_after"], statistics.fmean(r[7] for r in aside)), "aside after")


def check_worst(listed, rows, count):
    order = sorted(rows, key=lambda r: (-r[7], r[0], r[1], PROJECTIONS.index(r[2])))
    check(len(listed) == count, f"{len(listed)} worst, not {count}")
    for entry, row in zip(listed, order):
        found = tuple(entry[k] for k in ("layer", "expert", "projection", "method", "samples",
                                         "error", "before", "after"))
        check(found == row, f"worst {found}, not {row}")
        check(entry["format"] == "q2 g64", entry["format"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--checkpoint", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-ledger-") as scratch:
        model = Path(scratch) / "model"
        subprocess.run([args.program, "convert", args.checkpoint, "-o", model, "--quiet",
                        "--expert-format", "q2"], check=True)
        layout = model / "packed_experts" / "layout.json"
        text = json.loads(layout.read_text())
        check("quality" not in json.loads(inspect(args.program, model, "--json"))["packs"][0],
              "a pack without a ledger has a quality")
        ledger, rows = make_ledger(random.Random(4), text["num_layers"], text["num_experts"])
        text.setdefault("report", {})["ledger"] = ledger
        layout.write_text(json.dumps(text))
        pack = json.loads(inspect(args.program, model, "--json"))["packs"][0]
        quality = pack["quality"]
        check(quality["error"] == "output", "kind of error")
        counts = {m: sum(r[3] == m for r in rows) for m in METHODS}
        check(quality["methods"] == counts, f"methods {quality['methods']}, not {counts}")
        samples = [n for layer in ledger["layers"] for n in layer["samples"]]
        expected = {"min": min(samples), "median": statistics.median(samples), "max": max(samples),
                    "starved_experts": sum(n < STARVED for n in samples),
                    "unseen_experts": samples.count(0)}
        check(quality["samples"] == expected, f"samples {quality['samples']}, not {expected}")
        check_means(quality, rows)
        check_worst(quality["worst"], rows, 20)
        few = json.loads(inspect(args.program, model / "packed_experts", "--json", "--worst", "3"))
        check_worst(few["packs"][0]["quality"]["worst"], rows, 3)
        shown = inspect(args.program, model, "--worst", "2")
        worst = max(rows, key=lambda r: r[7])
        check(f"{counts['gptq']} matrices by gptq" in shown, shown)
        check(any(line.split()[:3] == [str(worst[0]), str(worst[1]), worst[2]]
                  and line.split()[-1] == f"{worst[7]:.4g}" for line in shown.splitlines()), shown)
        # A ledger for people only: a broken one is no error.
        text["report"]["ledger"] = {"error": "output", "layers": [1]}
        layout.write_text(json.dumps(text))
        check("quality" not in inspect(args.program, model), "a broken ledger is shown")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures moepack bench against other engines in alternating runs and prints a Markdown table.

Each peer is a name and a command line that takes llama-bench's flags and prints its JSON:

    bench/compare_engines.py --program build/release/bin/moepack --model MODEL -t 2 \\
        --peer "llama.cpp=llama-bench -m model.gguf" \\
        --peer "ik_llama.cpp=ik-llama-bench -m model.gguf -rtr 1 -fmoe 1"

-p, -n, -pg, -t, -r, -o json, and -d where a depth is not 0, are added to it. Engines run one after
another, in turn forwards and backwards (a b b a), so that a drift of the machine meets all alike.
Every run is a process of its own with a warm-up; its number is the mean of its repetitions, and the
table has the medians of all rounds with the least and the most. A ratio above 1 says that moepack
is faster. The read rate is moepack bench's: the least and the most of all its runs, each of which has
a share of its own.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

OWN = "moepack"
KEY = ("n_threads", "n_prompt", "n_gen", "n_depth")


def processors():
    """Those that this process, and so every engine it starts, may run on."""
    return len(os.sched_getaffinity(0))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="moepack")
    parser.add_argument("--model", required=True, help="model directory for moepack")
    parser.add_argument("--flags", default="", help="more flags for moepack bench")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND",
                        help="another engine; may be given several times")
    parser.add_argument("-p", "--n-prompt", default="512")
    parser.add_argument("-n", "--n-gen", default="128")
    parser.add_argument("-pg", dest="pairs", action="append", default=[], metavar="PP,TG")
    parser.add_argument("-d", "--n-depth", default="0")
    parser.add_argument("-t", "--threads", default=str(processors()))
    parser.add_argument("-r", "--repetitions", type=int, default=1, help="in one run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine")
    args = parser.parse_args()
    for peer in args.peer:
        if "=" not in peer:
            parser.error(f"--peer {peer}: write NAME=COMMAND")
    return args


def test_flags(args):
    flags = ["-p", args.n_prompt, "-n", args.n_gen, "-t", args.threads, "-r",
             str(args.repetitions), "-o", "json"]
    for pair in args.pairs:
        flags += ["-pg", pair]
    if args.n_depth != "0":
        flags += ["-d", args.n_depth]
    return flags


def command_lines(args):
    """Name -> words, moepack first."""
    lines = {OWN: [args.program, "bench", args.model, *shlex.split(args.flags)]}
    for peer in args.peer:
        name, command = peer.split("=", 1)
        lines[name] = shlex.split(command)
    return {name: words + test_flags(args) for name, words in lines.items()}


def rows_in(text):
    """The first JSON list of tests in what an engine printed, between lines of its log; None: there
    is none. A warning may stand in the midst of the list."""
    text = "\n".join(line for line in text.split("\n") if not line.startswith("WARNING"))
    start = text.find("[")
    while start >= 0:
        try:
            rows, _ = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            rows = None
        if rows and all(isinstance(row, dict) and "avg_ts" in row for row in rows):
            return rows
        start = text.find("[", start + 1)
    return None


def run(name, words):
    """The rows of one run, by test."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: {shlex.join(words)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    rows = rows_in(done.stdout)
    if rows is None:
        raise SystemExit(f"{name}: no JSON list of tests: {done.stdout[:200]!r}")
    return {tuple(int(row.get(key, 0)) for key in KEY): row for row in rows}


def measure(lines, rounds):
    """Name -> the rows of every round."""
    measured = {name: [] for name in lines}
    for number in range(rounds):
        names = list(lines) if number % 2 == 0 else list(reversed(lines))
        for name in names:
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
            measured[name].append(run(name, lines[name]))
    return measured


def test_name(test):
    _, prompt, generated, depth = test
    name = "+".join(f"{kind}{n}" for kind, n in (("pp", prompt), ("tg", generated)) if n > 0)
    return name if depth == 0 else f"{name} @ d{depth}"


def speed_text(speeds):
    return f"{statistics.median(speeds):.2f} ({min(speeds):.2f}–{max(speeds):.2f})"


def table(measured):
    """The lines of the table; "-" where an engine has no such test."""
    peers = [name for name in measured if name != OWN]
    head = ["threads", "test", f"{OWN} t/s", "hit %", "% of read rate"]
    for name in peers:
        head += [f"{name} t/s", "ratio"]
    lines = [head, ["---:", "---"] + ["---:"] * (len(head) - 2)]
    for test in measured[OWN][0]:
        own = [rows[test] for rows in measured[OWN]]
        speeds = [row["avg_ts"] for row in own]
        shares = [row["share_of_read_rate"] for row in own if row["share_of_read_rate"] is not None]
        line = [str(test[0]), test_name(test), speed_text(speeds),
                f"{statistics.median(row['hit_percent'] for row in own):.1f}",
                f"{100 * statistics.median(shares):.1f}" if shares else "-"]
        for name in peers:
            others = [rows[test]["avg_ts"] for rows in measured[name] if test in rows]
            if others:
                ratio = statistics.median(speeds) / statistics.median(others)
                line += [speed_text(others), f"{ratio:.2f}"]
            else:
                line += ["-", "-"]
        lines.append(line)
    return ["| " + " | ".join(line) + " |" for line in lines]


def machine_text(measured):
    rows = [row for rows in measured[OWN] for row in rows.values()]
    rates = {}
    for row in rows:
        rates.setdefault(row["n_threads"], []).append(row["read_rate_gb_s"])
    rate_text = ", ".join(f"{min(of):.1f}–{max(of):.1f} GB/s with {threads}"
                          for threads, of in sorted(rates.items()))
    first = rows[0]
    return (f"{first['cpu_info'] or 'unknown processor'}, {processors()} processors; read rate "
            f"{rate_text} threads; {first['model_type']}, {first['model_size'] / 1e9:.2f} GB; "
            f"kernels {first['kernels']}, activations {first['activations']}")


def main():
    args = parse_arguments()
    lines = command_lines(args)
    measured = measure(lines, args.rounds)
    print(machine_text(measured) + f"; medians of {args.rounds} runs in turn.\n")
    print("\n".join(table(measured)))
    print("\nCommands:\n")
    for words in lines.values():
        shown = [os.path.basename(words[0])] + [os.path.basename(w) if "/" in w else w
                                                for w in words[1:]]
        print(f"    {shlex.join(shown)}")


if __name__ == "__main__":
    main()

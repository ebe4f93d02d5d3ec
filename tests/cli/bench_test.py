#!/usr/bin/env python3
"""`moepack bench` and --timing: keys and tables, numbers that must add up, bytes of a token counted
anew from the manifests, and flags that are refused."""
import csv
import io
import json
import math
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options, small_cache

LLAMA_BENCH_KEYS = ["build_commit", "cpu_info", "gpu_info", "backends", "model_filename",
                    "model_type", "model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads",
                    "type_k", "type_v", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts",
                    "stddev_ts"]
OWN_KEYS = ["samples_ns", "samples_ts", "kernels", "activations", "io", "io_engine",
            "hit_percent", "gb_per_token",
            "gb_per_s", "read_rate_gb_s", "share_of_read_rate",
            "disk_gb_per_token", "disk_gb_s", "disk_rate_gb_s", "share_of_disk_rate",
            "cache_policy", "cache_bytes"]
DISK_HEAD = ["disk GB/token", "% of disk rate"]
STAGES = ["embed", "full_attention", "delta_net", "router", "experts", "expert_wait", "head",
          "other"]
TABLE_HEAD = ["model", "size", "params", "backend", "threads", "test", "t/s", "hit %", "GB/token",
              "GB/s", "% of read rate"]


def close(a, b, share=1e-6):
    return math.isclose(a, b, rel_tol=share, abs_tol=1e-9)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


class Checks(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch)
        self.model = scratch / "model"
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")

    def bench(self, *flags):
        return self.succeeds("bench", self.model, *flags).stdout

    def same_numbers(self, row, name):
        """What follows from the samples."""
        tokens = row["n_prompt"] + row["n_gen"]
        ns, ts = row["samples_ns"], row["samples_ts"]
        self.expect(len(ns) == len(ts) and all(n > 0 for n in ns), f"{name}: samples")
        for n, t in zip(ns, ts):
            self.expect(close(t, tokens * 1e9 / n, 1e-4), f"{name}: {t} tokens/s in {n} ns")
        self.expect(abs(row["avg_ns"] - statistics.mean(ns)) <= 1, f"{name}: avg_ns")
        self.expect(close(row["avg_ts"], statistics.mean(ts)), f"{name}: avg_ts")
        if len(ns) > 1:
            self.expect(abs(row["stddev_ns"] - statistics.stdev(ns)) <= 1, f"{name}: stddev_ns")
            self.expect(close(row["stddev_ts"], statistics.stdev(ts)), f"{name}: stddev_ts")
        self.expect(0 <= row["hit_percent"] <= 100 and row["read_rate_gb_s"] > 0, f"{name}: rates")
        if row["n_prompt"] > 0:
            self.expect(row["gb_per_token"] is None and row["gb_per_s"] is None
                        and row["share_of_read_rate"] is None, f"{name}: bytes of a prompt's token")
            return
        self.expect(close(row["gb_per_s"], row["gb_per_token"] * row["avg_ts"]), f"{name}: GB/s")
        self.expect(close(row["share_of_read_rate"], row["gb_per_s"] / row["read_rate_gb_s"]),
                    f"{name}: share")

    def json_rows(self):
        flags = ("-p", "8,5", "-n", 4, "-pg", "6,3", "-d", "0,300", "-r", 3, "-t", "1,2")
        rows = json.loads(self.bench(*flags, "-o", "json"))
        got = [(r["n_threads"], r["n_depth"], r["n_prompt"], r["n_gen"]) for r in rows]
        wanted = [(t, d, p, g) for t in (1, 2) for d in (0, 300)
                  for p, g in ((8, 0), (5, 0), (0, 4), (6, 3))]
        self.expect(got == wanted, f"tests in llama-bench's order: {got}")
        for row in rows:
            name = f"pp{row['n_prompt']} tg{row['n_gen']}"
            self.expect(list(row) == LLAMA_BENCH_KEYS + OWN_KEYS, f"keys {list(row)}")
            self.expect(len(row["samples_ns"]) == 3, f"{name}: repetitions")
            self.expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["test_time"]) is not None,
                        f"{name}: {row['test_time']}")
            self.same_numbers(row, name)
        lines = self.bench("-p", 4, "-n", 2, "-r", 1, "--no-warmup", "-o", "jsonl").splitlines()
        self.expect([json.loads(line)["n_gen"] for line in lines] == [0, 2], "JSON lines")
        for flags, wanted in (((), "i16"), (("--activations", "i8"), "i8"), (("--activations", "f32"), "f32"),
                              (("--backend", "reference"), "f32")):
            row = json.loads(self.bench("-p", 0, "-n", 1, "-r", 1, "-o", "jsonl", *flags))
            self.expect(row["activations"] == wanted, f"{flags}: {row['activations']}")

    def token_bytes(self):
        """Bytes of a decoded token and sizes of the model, from its manifests."""
        residents = json.loads((self.model / "model_weights.json").read_text())["tensors"]
        layout = json.loads((self.model / "packed_experts" / "layout.json").read_text())
        config = json.loads((self.model / "config.json").read_text())["text_config"]
        # In memory, vectors are float32.
        in_memory = {name: t["size"] * (2 if t.get("format") == "bf16" else 1)
                     for name, t in residents.items()}
        embedding = sum(n for name, n in in_memory.items() if ".embed_tokens." in name)
        experts = layout["num_layers"] * layout["num_experts"] * layout["expert_size"]
        used = layout["num_layers"] * config["num_experts_per_tok"] * layout["expert_size"]
        weights = sum(in_memory.values()) - embedding + embedding // config["vocab_size"] + used
        linear = config["layer_types"].count("linear_attention")
        keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
        dk, dv = config["linear_key_head_dim"], config["linear_value_head_dim"]
        channels = 2 * keys * dk + values * dv
        window = (config["linear_conv_kernel_dim"] - 1) * channels
        # In blocks of 16: S is written once, and half of the other 15 rows are there to be read.
        row = keys * dk + values * dv
        state = 4 * linear * (2 * window + values * dk * dv * 17 / 16 + row * (1 + 15 / 2))
        width = 2 * config["num_key_value_heads"] * config["head_dim"]  # numbers of a position
        rows = [json.loads(line) for line in self.bench(
            "-p", 0, "-n", 4, "-d", "0,100", "-r", 1, "--no-warmup", "-o", "jsonl").splitlines()]
        got = [round(row["gb_per_token"] * 1e9) for row in rows]
        size = (got[1] - got[0]) / 100 / width  # bytes of a stored key or value
        self.expect(size in (1, 2, 4), f"a position takes {size * width} bytes")
        self.expect(abs(got[0] - (weights + state + 2 * size * width)) <= 1,
                    f"{got[0]} bytes a token, not {weights + state + 2 * size * width}")
        self.expect(rows[0]["model_size"] == sum(in_memory.values()) + experts, "model_size")
        self.expect(1.7 * rows[0]["model_n_params"] > rows[0]["model_size"]
                    > 0.5 * rows[0]["model_n_params"], "model_n_params")

    def tables(self):
        lines = self.bench("-p", 4, "-n", 3, "-d", "0,9", "-r", 2, "--timing").splitlines()
        self.expect(cells(lines[0]) == TABLE_HEAD, f"{lines[0]}")
        self.expect([cells(line)[5] for line in lines[2:6]] ==
                    ["pp4", "tg3", "pp4 @ d9", "tg3 @ d9"], "names of tests")
        self.expect(all(re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", cells(line)[6])
                        for line in lines[2:6]), "mean ± deviation")
        self.expect(len({len(line) for line in lines[:6]}) == 1, "columns stand below each other")
        self.expect([cells(line)[0] for line in lines[9:]] == STAGES + ["total"], "stages")
        rows = list(csv.DictReader(io.StringIO(
            self.bench("-p", 4, "-n", 3, "-r", 2, "-o", "csv", "--timing"))))
        self.expect(len(rows) == 2 and list(rows[0])[:len(LLAMA_BENCH_KEYS)] == LLAMA_BENCH_KEYS
                    and float(rows[0]["avg_ts"]) > 0 and float(rows[1]["total_ms"]) > 0
                    and len(json.loads(rows[1]["samples_ns"])) == 2, "CSV")

    def timing(self):
        rows = json.loads(self.bench("-p", 32, "-n", 8, "-r", 2, "--timing", "-o", "json"))
        for row in rows:
            stages = row["stages_ms_per_token"]
            self.expect(list(stages) == STAGES + ["total"], f"stages {list(stages)}")
            self.expect(close(sum(stages[s] for s in STAGES), stages["total"]), "stages add up")
            took = row["avg_ns"] / 1e6 / (row["n_prompt"] + row["n_gen"])
            self.expect(close(stages["total"], took, 0.2), f"{stages['total']} ms in all, of {took}")
            for stage in STAGES:
                self.expect(stages[stage] > 0 or stage == "expert_wait", f"no time in {stage}")
        run = ("run", self.model, "-p", "one two three", "-n", 4, "--ignore-eos")
        done = json.loads(self.succeeds(*run, "--json", "--timing").stdout)
        timed = done["stages_ms_per_token"]
        self.expect(close(timed["decode"]["total"] * 3 / 1e3, done["decode_seconds"], 0.3),
                    f"decode of run: {timed['decode']['total']} ms a token")
        self.expect("stages_ms_per_token" not in json.loads(self.succeeds(*run, "--json").stdout),
                    "timing without being asked")
        self.expect("| router " in self.succeeds(*run, "--timing").stderr, "table of run")

    def replay(self):
        """A replay has the hits of the run whose trace it is, and a killed run's trace is read."""
        trace = self.scratch / "t.trace"
        layout = json.loads((self.model / "packed_experts" / "layout.json").read_text())
        config = json.loads((self.model / "config.json").read_text())["text_config"]
        record = -(-layout["expert_size"] // 4096) * 4096
        floor = layout["num_layers"] * config["num_experts_per_tok"] * record
        mib = -(-floor // 2 ** 20)
        seen = set()
        for policy in ("lru", "lfru"):
            run = json.loads(self.bench("-p", 0, "-n", 40, "-r", 1, "--no-warmup", "-o", "jsonl",
                                        "--cache-mb", mib, "--cache-policy", policy,
                                        "--trace", trace))
            self.expect(run["cache_policy"] == policy, f"{run['cache_policy']}")
            again = json.loads(self.succeeds(
                "bench", "--replay", trace, self.model, "--cache-mb", mib, "--cache-policy", policy,
                "--disk-gbs", "1.5,1", "-o", "jsonl").stdout)
            self.expect(close(again["hit_percent"], run["hit_percent"], 1e-9),
                        f"{policy}: {again['hit_percent']} % of a run with {run['hit_percent']} %")
            self.expect(again["decode"]["tokens"] == 40 and again["prompt"]["tokens"] == 0
                        and again["decode"]["tokens_per_second"] > 0, f"{again['decode']}")
            self.expect(again["cache_bytes"] == run["cache_bytes"], "the budget")
            seen.add(again["hit_percent"])
        self.expect(len(seen) == 2, f"the policies make a difference: {seen}")
        lines = self.succeeds("bench", "--replay", trace).stdout.splitlines()
        self.expect(len(lines) >= 4 and len({len(line) for line in lines}) == 1, "a table")
        self.expect({cells(line)[3] for line in lines[2:]} == {"lru", "lfru"}, "both policies")
        skipped = json.loads(self.succeeds("bench", "--replay", trace, "--cache-mb", 0, "--skip", 39,
                                           "--cache-policy", "lru", "-o", "json").stdout)
        self.expect(skipped[0]["decode"]["tokens"] == 1, "passes that are not counted")
        whole = trace.read_bytes()
        (self.scratch / "killed.trace").write_bytes(whole[:-3])
        killed = self.succeeds("bench", "--replay", self.scratch / "killed.trace")
        self.expect("its run was killed" in killed.stderr, f"{killed.stderr}")
        (self.scratch / "damaged.trace").write_bytes(whole[:-3] + b"xyz")
        self.refuses("a damaged trace", ["checksum", "offset"],
                     "bench", "--replay", self.scratch / "damaged.trace")
        self.refuses("a synthetic one for the model", ["another model"], "bench", "--replay",
                     "synthetic:35b-a3b,tokens=5", self.model)

    def synthetic(self):
        spec = "synthetic:35b-a3b,layers=4,tokens=300"
        rows = json.loads(self.succeeds("bench", "--replay", spec, "--skip", 100, "--disk-gbs", 2,
                                        "--token-ms", 5, "-o", "json").stdout)
        got = {(round(1 / r["cache_share"]), r["cache_policy"]): r for r in rows}
        self.expect(sorted(got) == sorted((d, p) for d in (1, 2, 4, 8, 16, 32)
                                          for p in ("lru", "lfru")), f"{sorted(got)}")
        for share in (4, 8, 16, 32):
            self.expect(got[share, "lfru"]["hit_percent"] > got[share, "lru"]["hit_percent"] + 2,
                        f"skewed routing, 1/{share}: lfru is better")
        for policy in ("lru", "lfru"):
            hits = [got[share, policy]["hit_percent"] for share in (32, 16, 8, 4, 2, 1)]
            rates = [got[share, policy]["decode"]["tokens_per_second"]
                     for share in (32, 16, 8, 4, 2, 1)]
            self.expect(hits == sorted(hits) and rates == sorted(rates), f"{policy}: {hits} {rates}")
            self.expect(rates[-1] <= 200.001, "no faster than --token-ms")
        rows = self.succeeds("bench", "--replay", spec, "-o", "csv", "--cache-mb", "200,300").stdout
        rows = list(csv.DictReader(io.StringIO(rows)))
        self.expect(len(rows) == 4 and float(rows[0]["decode_hit_percent"]) > 0
                    and rows[0]["decode_tokens_per_second"] == "", "CSV")

    def car(self):
        run = ("run", self.model, "-p", "one two three", "-n", 8, "--ignore-eos", "--json")
        done = json.loads(self.succeeds(*run, "--car", "1,6", "--cache-mb", 2).stdout)
        self.expect(0 < done["routing_agreement"] <= 1, f"{done['routing_agreement']}")
        self.expect("routing_agreement" not in json.loads(self.succeeds(*run).stdout), "without it")
        for bad in ("1", "1,", "x,2", "2,0"):
            self.refuses(f"--car {bad}", ["--car"], *run, "--car", bad)
        self.refuses("--car beyond the model", ["J,M"], *run, "--car", "1,1000")
        self.refuses("--car of the reference", ["reference"], *run, "--car", "1,6",
                     "--backend", "reference")
        text = self.scratch / "text"
        text.write_text("In Rust, a value has one owner; in C++, an owner is a habit. " * 6)
        scored = ("perplexity", self.model, "-f", text, "-c", 32, "--cache-mb", small_cache(self.model))
        own = json.loads(self.succeeds(*scored, "--json").stdout)
        self.expect("ppl_ratio" not in own, "a change without --car")
        car = json.loads(self.succeeds(*scored, "--json", "--car", "1,12", "--chunk", 1).stdout)
        self.expect(close(car["ppl_base"], own["ppl"], 1e-3), f"{car['ppl_base']}, {own['ppl']}")
        self.expect(close(car["ppl_ratio"], car["ppl"] / car["ppl_base"], 1e-9)
                    and close(car["ppl_difference"], car["ppl"] - car["ppl_base"], 1e-9)
                    and car["ppl_ratio"] != 1 and car["ppl_ratio_error"] > 0
                    and 0 < car["routing_agreement"] < 1, f"the price of --car: {car}")
        same = self.succeeds(*scored, "--car", f"0,{self.experts_per_token()}")
        self.expect("Change: PPL(Q)/PPL(base) = 1.00000 +/- 0.00000" in same.stdout
                    and "100.00 % of the choices" in same.stderr, f"{same.stdout} {same.stderr}")

    def experts_per_token(self):
        return json.loads((self.model / "config.json").read_text())["text_config"]["num_experts_per_tok"]

    def reading(self):
        """With a cache smaller than the pack: what was read of the disk, and when."""
        floor = ("--cache-mb", small_cache(self.model))
        timeline = self.scratch / "timeline.json"
        row = json.loads(self.bench("-p", 0, "-n", 6, "-r", 2, "--no-warmup", "-o", "jsonl", *floor,
                                    "--timeline", timeline))
        self.expect(row["disk_gb_per_token"] > 0 and row["disk_rate_gb_s"] > 0, f"reading {row}")
        seconds = sum(row["samples_ns"]) / 1e9
        self.expect(close(row["disk_gb_s"], row["disk_gb_per_token"] * 12 / seconds, 1e-4)
                    and close(row["share_of_disk_rate"], row["disk_gb_s"] / row["disk_rate_gb_s"]),
                    "rates of the disk")
        events = json.loads(timeline.read_text())["traceEvents"]
        of_track = [[e for e in events if e["ph"] == "X" and e["tid"] == t] for t in (0, 1, 2)]
        self.expect(len(of_track[0]) == 12 and all(e["args"]["tokens"] == 1 for e in of_track[0]),
                    "a batch for each token")
        self.expect({e["name"] for e in of_track[1]} == set(STAGES), "stages of the timeline")
        read = sum(e["args"]["bytes"] for e in of_track[2])
        self.expect(close(read / 12 / 1e9, row["disk_gb_per_token"]), "reads of the timeline")
        ends = [e["ts"] + e["dur"] for e in of_track[1]]
        self.expect(all(abs(end - e["ts"]) < 0.01 for end, e in zip(ends, of_track[1][1:])),
                    "stages follow one another")
        table = self.bench("-p", 0, "-n", 2, "-r", 1, *floor).splitlines()
        self.expect(cells(table[0]) == TABLE_HEAD + DISK_HEAD, table[0])
        self.expect(len({len(line) for line in table}) == 1, "columns of the disk")
        self.refuses("a timeline that cannot be written", [self.scratch.name], "bench", self.model,
                     "--timeline", self.scratch)

    def replays_alone(self):
        """Every flag of bench is either a replay's or refused beside it, by its name."""
        values = {"--tensor-split": ("1,1", "--devices", "0,1"), "--pg": ("1,1",), "--car": ("1,2",),
                  "--no-warmup": (), "--timing": (), "--backend": ("cpu",), "--io": ("direct",),
                  "--io-engine": ("threads",), "--overlay": ("all",), "--cold-experts": ("cpu",),
                  "--hot-weighting": ("flat",), "--activations": ("i8",), "--cpu": ("auto",)}
        help_text = self.succeeds("bench", "--help").stdout
        flags = set(re.findall(r"(--[a-z][a-z-]+)", "\n".join(
            line[:40] for line in help_text.splitlines() if line.lstrip().startswith("-"))))
        of_replay = {"--skip", "--disk-gbs", "--token-ms"}
        both = {"--help", "--replay", "--model", "--pin", "--cache-mb", "--cache-policy", "--output"}
        self.expect(len(flags) > 35 and of_replay | both <= flags, f"flags of --help: {sorted(flags)}")
        for flag in sorted(flags - of_replay - both):
            named = "--devices" if flag == "--tensor-split" else flag  # which it needs
            self.refuses(f"a replay with {flag}", [named], "bench", "--replay",
                         "synthetic:layers=2,tokens=2", flag, *values.get(flag, ("1",)))
        for flag in sorted(of_replay):
            self.refuses(f"a run with {flag}", [flag, "--replay"], "bench", self.model, flag, 2)
        os.environ["MOEPACK_IO"] = "direct"  # which is of runs
        self.succeeds("bench", "--replay", "synthetic:layers=2,tokens=2")
        del os.environ["MOEPACK_IO"]

    def errors(self):
        self.refuses("two engines and a trace", ["--trace"], "bench", self.model, "--cache-mb",
                     "0,100", "--trace", self.scratch / "x.trace")
        self.refuses("a trace of skipped passes", ["behind the first 2", "--skip"], "bench", "--replay",
                     "synthetic:layers=2,tokens=2", "--skip", 2)
        for bad in ("synthetic:40b", "synthetic:zipf=x", self.scratch / "gone.trace"):
            self.refuses(f"--replay {bad}", [], "bench", "--replay", bad)
        self.replays_alone()
        self.refuses("a budget below the floor", ["--cache-mb"], "bench", "--replay",
                     "synthetic:35b-a3b", "--cache-mb", 100)

        def fails(what, needles, *flags):
            self.refuses(what, needles, "bench", *flags)

        for flag, bad in (("-p", "x"), ("-p", "-1"), ("-n", "4,x"), ("-d", "1.5"), ("-t", "2000"),
                          ("-r", "0"), ("-pg", "5"), ("-pg", "5,6,7"), ("-pg", ",6"),
                          ("-o", "sql")):
            fails(f"{flag} {bad}", [], self.model, flag, bad)
        fails("no tests", ["-p", "-n"], self.model, "-p", 0, "-n", 0)
        fails("no model", ["gone"], self.scratch / "gone", "-p", 1)
        fails("too small a cache", ["--cache-mb"], self.model, "--cache-mb", 1)
        fails("no such backend", ["cuda"], self.model, "--backend", "cuda")
        fails("no MODEL", ["--model"], "-p", 1)


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-bench-") as scratch:
        checks = Checks(args, Path(scratch))
        checks.json_rows()
        checks.token_bytes()
        checks.tables()
        checks.timing()
        checks.replay()
        checks.synthetic()
        checks.car()
        checks.reading()
        checks.errors()
        return conclude(checks.failures, f"{checks.checks} checks, {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

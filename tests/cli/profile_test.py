#!/usr/bin/env python3
"""`moepack profile`: counts against those computed here from a calibration's recorded routing and,
where the trained models are, from router logits of another program; sums of runs; lists of hot
experts against a computation of the definition; other engines' formats; errors.
"""
import array
import json
import math
import os
import struct
import sys
import tempfile
from pathlib import Path

import calibration_files
from cli_runner import CliRunner, conclude, options


def read_profile(path):
    return json.loads(Path(path).read_text())


def counts_of(profile):
    return [layer["counts"] for layer in profile["layers"]]


def covering(counts, threshold):
    """profile_experts.py's rule: most used first, until the share is reached."""
    order = sorted((e for e, c in enumerate(counts) if c), key=lambda e: (-counts[e], e))
    total, covered, hot = sum(counts), 0, []
    for expert in order:
        hot.append(expert)
        covered += counts[expert]
        if covered / total >= threshold:
            break
    return hot


class Tester(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch)
        self.model = scratch / "model"
        self.output = scratch / "out.json"
        self.hot = scratch / "hot.json"

    def ids(self, name, count, step):
        path = self.scratch / name
        path.write_text(json.dumps([i * step % 4000 + 11 for i in range(count)]))
        return path

    def write(self, name, value):
        path = self.scratch / name
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def profile(self, *args, output=None, **flags):
        """Runs the command; returns (parsed profile, its bytes, the --json report)."""
        output = output or self.output
        for path in (output, self.hot):
            path.unlink(missing_ok=True)
        done = self.run("profile", *args, "-o", output, "--json", "--quiet", **flags)
        self.expect(done.returncode == 0 and not done.stderr, f"{args}: {done.stderr.strip()[:300]}")
        if not output.exists():
            self.expect(False, f"{args}: no output")
            return {"layers": []}, b"", {}
        return read_profile(output), output.read_bytes(), json.loads(done.stdout)

    def fails(self, name, parts, *args):
        for path in (self.output, self.hot):
            path.unlink(missing_ok=True)
        self.refuses(name, parts, "profile", *args)

    # ---- what is counted ----

    def agrees_with_routing(self):
        """Counts and weights are those of the routing that a calibration recorded."""
        ids, calibration = self.ids("ids.json", 1100, 977), self.scratch / "calibration"
        done = self.run("calibrate", self.model, "--token-ids", ids, "-c", 16, "-o", calibration,
                        "--quiet")
        self.expect(done.returncode == 0, done.stderr)
        found, data, report = self.profile(self.model, "--token-ids", ids, "-c", 16)
        self.expect((found["model"], found["tokens"], found["experts_per_token"]) ==
                    ("model", 1100, 3), "head of the profile")
        self.expect(report["run"]["windows"] == 69 and report["run"]["batches"] == 1, "windows")
        for index, layer in enumerate(found["layers"]):
            _, experts, weights = calibration_files.read_layer(calibration, index)
            wanted = [[0, 0.0, 0.0] for _ in range(found["num_experts"])]
            for row, of_row in zip(experts, weights):
                for expert, weight in zip(row, of_row):
                    wanted[expert][0] += 1
                    wanted[expert][1] += weight
                    wanted[expert][2] += weight * weight
            self.expect(layer["counts"] == [w[0] for w in wanted], f"counts of layer {index}")
            self.expect(layer["weight_sums"] == [w[1] for w in wanted]
                        and layer["weight_square_sums"] == [w[2] for w in wanted],
                        f"weights of layer {index}")
        _, of_calibration, _ = self.profile("--calibration", calibration)
        self.expect(of_calibration == data, "--calibration gives other bytes")
        for most in (200, 1095):  # some windows, all but a part of the last
            part = self.scratch / f"part{most}"
            self.run("calibrate", self.model, "--token-ids", ids, "-c", 16, "-o", part, "--quiet",
                     "--max-tokens", most)
            _, wanted, _ = self.profile("--calibration", part)
            _, chosen, _ = self.profile(self.model, "--token-ids", ids, "-c", 16, "--max-tokens",
                                        most)
            self.expect(chosen == wanted, f"--max-tokens {most} chooses other windows")
        _, threads, _ = self.profile(self.model, "--token-ids", ids, "-c", 16, "-t", 3)
        self.expect(threads == data, "3 threads: other bytes")
        # Batches: exact with the reference kernels.
        common = (self.model, "--token-ids", ids, "-c", 16, "--backend", "reference")
        whole, _, at_once = self.profile(*common)
        batched, _, report = self.profile(*common, "--ram-mb", 1)
        saved = at_once["run"]["memory_bytes"] - report["run"]["memory_bytes"]
        self.expect(saved >= 1100 * (8 * 256 + 16 * 3) - (1 << 20), "a batch exceeds --ram-mb")
        self.expect(batched == whole and report["run"]["batches"] == 3,
                    f"{report['run']['batches']} batches: other numbers")
        return found

    def golden_router(self):
        """Router logits of transformers in float32 lead to the same counts."""
        root = os.environ.get("MOEPACK_TEST_MODELS", "")
        source = Path(root) / "small-moe"
        if not root or not source.exists():
            return False
        model = self.scratch / "small"
        self.run("convert", source, "-o", model, "--quiet")
        found, _, _ = self.profile(model, "--token-ids", source / "golden/prompt_ids.json")
        golden = array.array("f", (source / "golden/router_logits.f32").read_bytes())
        width, top_k = found["num_experts"], found["experts_per_token"]
        for index, layer in enumerate(found["layers"]):
            counts, sums = [0] * width, [0.0] * width
            for token in range(found["tokens"]):
                at = (index * found["tokens"] + token) * width
                logits = golden[at:at + width]
                best = sorted(range(width), key=lambda e, x=logits: (-x[e], e))[:top_k]
                total = sum(math.exp(logits[e] - logits[best[0]]) for e in best)
                for e in best:
                    counts[e] += 1
                    sums[e] += math.exp(logits[e] - logits[best[0]]) / total
            self.expect(layer["counts"] == counts, f"golden counts of layer {index}")
            self.expect(all(abs(a - b) <= 1e-5 * max(1, n) for a, b, n in
                            zip(layer["weight_sums"], sums, counts)), f"golden weights of {index}")
        return True

    def sums(self):
        """Two runs added are one run with both texts; each text has its own windows."""
        first = self.write("a.txt", "The quick brown fox jumps over the lazy dog. " * 9)
        second = self.write("b.txt", "def f(x):\n    return {'a': x + 1}\n" * 7)
        common = (self.model, "-c", 32, "--backend", "reference")
        one, two = self.scratch / "one.json", self.scratch / "two.json"
        a, _, _ = self.profile(*common, "-f", first, output=one)
        b, _, _ = self.profile(*common, "-f", second, output=two)
        both, data, report = self.profile(*common, "-f", first, "-f", second)
        self.expect(report["run"]["windows"] == sum(-(-p["tokens"] // 32) for p in (a, b)),
                    "windows of two texts")
        summed, _, _ = self.profile("--add", one, "--add", two)
        self.expect(summed["tokens"] == both["tokens"] == a["tokens"] + b["tokens"], "tokens")
        self.expect(counts_of(summed) == counts_of(both) and counts_of(a) != counts_of(b),
                    "the sum of two runs is not the run of both")
        for x, y in zip(summed["layers"], both["layers"]):
            for key in ("weight_sums", "weight_square_sums"):
                self.expect(all(math.isclose(p, q, rel_tol=1e-12) for p, q in zip(x[key], y[key])),
                            key)
        done = self.run("profile", *common, "-f", second, "--add", one, "-o", one, "--quiet")
        self.expect(done.returncode == 0 and counts_of(read_profile(one)) == counts_of(both),
                    "a run added to a profile in its place")
        part, _, report = self.profile(*common, "-f", first, "-f", second, "--max-tokens", 40)
        self.expect(part["tokens"] == 40 and report["run"]["windows"] == 2, "--max-tokens")

    def hot_experts(self, profile):
        path = self.write("p.json", profile)
        for threshold in (0.1, 0.5, 0.8, 0.95, 1):
            _, _, report = self.profile("--add", path, "--coverage", threshold, "--hot-experts",
                                        self.hot)
            hot = json.loads(self.hot.read_text())
            wanted = {str(i): covering(c, threshold) for i, c in enumerate(counts_of(profile))}
            total = sum(map(len, wanted.values()))
            self.expect(hot == {"threshold": threshold, "num_layers": 4, "num_experts": 12,
                                "total_hot": total, "total_cold": 48 - total,
                                "hot_experts": wanted}, f"coverage {threshold}: {hot}")
            self.expect(report["total_hot"] == total
                        and [x["hot"] for x in report["layers"]] == [len(x) for x in
                                                                     wanted.values()], "report")
        for layer, counts in zip(report["layers"], counts_of(profile)):
            wanted = [len(covering(counts, s)) for s in (0.5, 0.8, 0.95)]
            self.expect([layer["experts_50"], layer["experts_80"], layer["experts_95"]] == wanted
                        and layer["unused"] == counts.count(0) and layer["uses"] == sum(counts),
                        f"report: {layer}")
        done = self.run("profile", "--add", path, "--top", 2, "--hot-experts", "-")
        hot = json.loads(done.stdout)
        self.expect(hot["threshold"] is None and all(
            hot["hot_experts"][str(i)] == covering(c, 1)[:2]
            for i, c in enumerate(counts_of(profile))), f"--top: {hot}")
        self.expect("8 of 48 experts are hot" in done.stderr, done.stderr)

    # ---- other engines ----

    def foreign(self):
        wanted = [[5, 0, 7, 0], [0, 0, 1, 2]]
        shape = ("--num-layers", 2, "--num-experts", 4)
        log = "x\nFREQ_DUMP layer=0: 0:4 2:7\nFREQ_DUMP layer=1: 2:1\n" \
              "tok/s\nFREQ_DUMP layer=0: 0:1\nFREQ_DUMP layer=1: 3:2\n"
        perf = {"schema": "llama.cpp.moe_layer_opt_perf.v1", "n_expert": 4, "n_expert_used": 2,
                "layers": [{"layer": 0, "experts": [[0, 1]], "hot_experts": [[0, 5]],
                            "cold_experts": [[2, 6], [2, 1]]},
                           {"layer": 1, "experts": [[3, 2], [2, 1]]}]}
        binary = struct.pack("<ii8I", 2, 4, *wanted[0], *wanted[1])
        for name, value in (("log", log), ("perf", perf), ("binary", binary),
                            ("counts", {"0": {"2": 7, "0": 5}, "1": {"2": 1, "3": 2}})):
            path = self.write(name, value)
            found, _, _ = self.profile("--add", path, *shape)
            self.expect(counts_of(found) == wanted and found["tokens"] == 0
                        and "weight_sums" not in found["layers"][0], f"{name}: {found}")
            doubled, _, _ = self.profile("--add", path, "--add", self.output, *shape,
                                         output=self.scratch / "doubled.json")
        found, _, _ = self.profile("--add", self.scratch / "binary")  # states its shape
        self.expect(counts_of(found) == wanted, "binary without flags")
        # What one input states holds for the next.
        doubled, _, _ = self.profile("--add", self.scratch / "binary", "--add", self.scratch / "log")
        self.expect(counts_of(doubled) == [[2 * c for c in row] for row in wanted], "two formats")
        # Named after the model, which also tells the shape.
        log = "".join(f"FREQ_DUMP layer={i}: {i}:3 11:1\n" for i in range(4))
        found, _, _ = self.profile(self.model, "--add", self.write("log", log))
        self.expect(found["model"] == "model" and counts_of(found)[3][3] == 3, "named by the model")
        ranks = self.write("freq.json", {"tokens": 9, "K": 2, "layers": {"0": [2, 0], "1": [3]}})
        found, _, report = self.profile("--add", ranks, *shape, "--top", 1, "--hot-experts", self.hot)
        self.expect(len(report["notes"]) == 1 and "freq.json" in report["notes"][0], "note of ranks")
        self.expect([x["ranks"] for x in found["layers"]] == [[2, 0], [3]] and found["tokens"] == 9,
                    f"freq-json: {found}")
        self.expect(json.loads(self.hot.read_text())["hot_experts"] == {"0": [2], "1": [3]}, "ranks")
        self.fails("coverage of ranks", ["ranks", "coverage"], "--add", ranks, *shape, "--coverage",
                   0.8, "--hot-experts", self.hot, "-o", self.output)
        self.fails("ranks in a sum", ["freq.json", "ranks"], "--add", self.scratch / "binary",
                   "--add", ranks, "-o", self.output)

    # ---- errors ----

    def errors(self):
        out = ("-o", self.output)
        ids, good = self.ids("few.json", 20, 31), self.scratch / "p.json"
        log = self.write("l.log", "FREQ_DUMP layer=0: 0:4\n")
        self.fails("nothing to count", ["nothing to count"], self.model, *out)
        self.fails("no model", ["model"], "--token-ids", ids, *out)
        self.fails("nothing to write", ["nothing to write"], "--add", good)
        self.fails("hot without share", ["--coverage"], "--add", good, "--hot-experts", self.hot)
        self.fails("one file twice", ["same file"], "--add", good, *out, "--hot-experts",
                   self.output, "--top", 1)
        self.fails("no shape", ["l.log", "--num-layers"], "--add", log, *out)
        self.fails("half a shape", ["l.log", "--num-experts"], "--add", log, "--num-layers", 1, *out)
        self.fails("another shape", ["p.json", "4 layers", "3"], "--add", good, "--num-layers", 3,
                   *out)
        self.fails("against the model", ["model", "12"], self.model, "--add", good, "--num-experts",
                   8, *out)
        self.fails("unknown format", ["FREQ_DUMP", "freq-json"], "--add", self.model / "config.json",
                   *out)
        self.fails("no such file", ["gone"], "--add", self.scratch / "gone", *out)
        self.fails("a directory", ["model"], "--add", self.model, *out)
        self.fails("no calibration", ["calibration"], "--calibration", self.model, *out)
        self.fails("both selections", ["--top"], "--add", good, "--top", 1, "--coverage", 0.5, *out)
        self.fails("coverage 0", ["coverage"], "--add", good, "--coverage", 0, *out)
        self.fails("top beyond", ["12"], "--add", good, "--top", 13, *out)
        self.fails("no room for a window", ["--ram-mb"], self.model, "--token-ids",
                   self.ids("many.json", 2000, 31), "-c", 2000, "--ram-mb", 1, *out)
        self.fails("not in the vocabulary", ["999999"], self.model, "--token-ids",
                   self.write("bad.json", [1, 999999]), *out)
        self.fails("empty text", ["empty.txt"], self.model, "-f", self.write("empty.txt", ""), *out)
        self.fails("no directory", ["missing"], "--add", good, "-o",
                   self.scratch / "missing" / "out.json")
        self.fails("stdout twice", ["stdout"], "--add", good, "-o", "-", "--json")
        other = read_profile(good)
        other.update(model="other", source_fingerprint="0" * 15 + "1")
        path = self.write("other.json", other)
        # Known before any text is run.
        self.fails("another name", ["other.json", "other", "model"], self.model, "--token-ids", ids,
                   "--add", path, *out)
        self.fails("another name", ["other.json"], "--add", good, "--add", path, *out)
        other = read_profile(good)
        other.update(experts_per_token=2, tokens=0)
        path = self.write("other.json", other)  # no line of progress before the error
        self.fails("another K", ["experts a token"], self.model, "--token-ids", ids, "--add", path,
                   *out)
        for name, text in (("cut", good.read_text()[:-3]), ("empty", "")):
            self.fails(name, ["cut.json"], "--add", self.write("cut.json", text), *out)
        for path in (self.output, self.hot):
            path.unlink(missing_ok=True)
        done = self.run("profile", self.model, "--token-ids", ids, *out, "--dry-run", "--json")
        report = json.loads(done.stdout)
        self.expect(done.returncode == 0 and report["tokens"] == 20 and report["dry_run"]
                    and report["run"]["batches"] == 1 and not self.output.exists(), "--dry-run")


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-profile-") as scratch:
        test = Tester(args, Path(scratch))
        converted = test.run("convert", args.checkpoint, "-o", test.model, "--quiet")
        test.expect(converted.returncode == 0, converted.stderr)
        profile = test.agrees_with_routing()
        golden = test.golden_router()
        test.sums()
        test.hot_experts(profile)
        test.foreign()
        test.errors()
        skipped = "golden counts" if golden else "SKIPPED: golden counts, no models"
        return conclude(test.failures, f"{test.checks} checks, {skipped}; ")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""`moepack calibrate`: what is recorded, against the checkpoint's own router and, where the trained
models are, against router logits of another program; interruptions at every moment; errors.

A preloaded library (tests/support/fault_shim.cpp) kills the command after syncs, renames and
removals, and makes writes fail. Every continued run must give the bytes of an undisturbed one.
"""
import array
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import calibration_files
import checkpoint_files
from cli_runner import CliRunner, conclude, options, tree_hash

STATE = "calibration.unfinished"


def softmax_top(logits, top_k):
    """The top_k experts as [(expert, weight)], renormalised."""
    most = max(logits)
    exps = [math.exp(x - most) for x in logits]
    order = sorted(range(len(exps)), key=lambda e: (-exps[e], e))[:top_k]
    total = sum(exps[e] for e in order)
    return [(e, exps[e] / total) for e in order]


class Tester(CliRunner):
    TIMEOUT = 120

    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.checkpoint = args.checkpoint
        self.model = scratch / "model"
        self.output = scratch / "calibration"
        self.ids = scratch / "ids.json"

    def calibrate(self, *flags, fault=None, output=None, model=None, ids=None, threads=2):
        source = [] if ids is False else ["--token-ids", ids or self.ids]
        return self.run("calibrate", model or self.model, "-o", output or self.output, "-c", "16",
                        "-t", threads, "--quiet", *source, *flags, fault=fault)

    def clear(self):
        shutil.rmtree(self.output, ignore_errors=True)

    def fails(self, name, result, parts, left=None):
        """The command must fail and leave nothing behind."""
        self.is_error(name, result, parts)
        left = self.output if left is None else left
        self.expect(left is False or not left.exists(), f"{name}: left something behind")

    def completes(self, name, expected):
        result = self.calibrate()
        if not (self.output / STATE).exists() and result.returncode == 2:
            self.expect("already holds" in result.stderr, f"{name}: {result.stderr.strip()}")
        else:
            self.expect(result.returncode == 0, f"{name}: next run: {result.stderr.strip()}")
        self.expect(self.output.exists() and tree_hash(self.output) == expected,
                    f"{name}: other bytes")

    # ---- what is recorded ----

    def router_agrees(self):
        """The recorded inputs times the checkpoint's router give the recorded routing."""
        tensors = checkpoint_files.read_tensors(self.checkpoint)
        self.clear()
        result = self.calibrate("--json")
        self.expect(result.returncode == 0, result.stderr)
        manifest = calibration_files.read_manifest(self.output)
        report = json.loads(result.stdout)
        self.expect(report["tokens"] == manifest["tokens"] == 90 and report["windows"] == 6, "sizes")
        worst, agreeing, total = 0.0, 0, 0
        for layer in range(manifest["num_layers"]):
            router = decode_q8(tensors, f"language_model.model.layers.{layer}.mlp.gate")
            inputs, experts, weights = calibration_files.read_layer(self.output, layer)
            samples = [0] * manifest["num_experts"]
            for token, row in enumerate(inputs):
                logits = [sum(a * b for a, b in zip(w, row)) for w in router]
                best = softmax_top(logits, manifest["experts_per_token"])
                total += 1
                agreeing += [e for e, _ in best] == experts[token]
                wanted = dict(best)
                for expert, weight in zip(experts[token], weights[token]):
                    samples[expert] += 1
                    worst = max(worst, abs(weight - wanted.get(expert, weight)))
                self.expect(abs(sum(weights[token]) - 1) < 1e-5, "weights do not sum to 1")
                self.expect(weights[token] == sorted(weights[token], reverse=True), "weight order")
            self.expect(samples == manifest["layers"][layer]["samples"], f"samples of {layer}")
            entry = report["layers"][layer]
            self.expect((entry["min_tokens"], entry["max_tokens"]) == (min(samples), max(samples)),
                        f"report of layer {layer}")
            starved = [s["expert"] for s in report["starved"] if s["layer"] == layer]
            self.expect(sorted(starved) == [e for e, n in enumerate(samples) if n < 64],
                        f"starved experts of layer {layer}")
        # bf16 inputs: near ties may fall the other way.
        self.expect(agreeing >= 0.97 * total and worst < 0.02,
                    f"{agreeing} of {total} tokens agree, weights to {worst:.4f}")
        return worst

    def golden_router(self):
        """Router logits of transformers in float32 choose the same experts."""
        root = os.environ.get("MOEPACK_TEST_MODELS", "")
        source = Path(root) / "small-moe"
        if not root or not source.exists():
            return False
        model, output = self.scratch / "small", self.scratch / "small-calibration"
        self.run("convert", source, "-o", model, "--quiet")
        for backend in ("reference", "cpu"):
            shutil.rmtree(output, ignore_errors=True)
            result = self.run("calibrate", model, "-o", output, "--quiet", "--backend", backend,
                              "--token-ids", source / "golden/prompt_ids.json")
            self.expect(result.returncode == 0, result.stderr)
            m = calibration_files.read_manifest(output)
            golden = array.array("f", (source / "golden/router_logits.f32").read_bytes())
            width = m["num_experts"]
            for layer in range(m["num_layers"]):
                _, experts, weights = calibration_files.read_layer(output, layer)
                for token in range(m["tokens"]):
                    at = (layer * m["tokens"] + token) * width
                    best = softmax_top(golden[at:at + width], m["experts_per_token"])
                    self.expect([e for e, _ in best] == experts[token]
                                and all(abs(w - x) < 1e-5
                                        for (_, w), x in zip(best, weights[token])),
                                f"{backend}: layer {layer}, token {token}: other routing")
        return True

    def deterministic(self, expected):
        for threads in (1, 3, 5):
            self.clear()
            self.calibrate(threads=threads)
            self.expect(tree_hash(self.output) == expected, f"{threads} threads: other bytes")
        self.clear()
        dry = self.calibrate("--dry-run", "--json")
        self.expect(dry.returncode == 0 and not self.output.exists(), f"dry run: {dry.stderr}")
        plan = json.loads(dry.stdout)
        self.expect(plan["estimated_seconds"] > 0 and 0 < plan["total_bytes"], "dry run's figures")

    def texts(self):
        """Several texts count as one; special tokens in them are one id each."""
        one, two = self.scratch / "one.txt", self.scratch / "two.txt"
        one.write_text("<|im_start|>user\nHow are you?<|im_end|>\n")
        two.write_text("Fine.\n")
        added = {t["content"]: t["id"] for t in
                 json.loads((self.model / "tokenizer.json").read_text())["added_tokens"]}
        self.clear()
        result = self.calibrate("-f", one, "-f", two, "--json", ids=False)
        self.expect(result.returncode == 0, result.stderr)
        tokens = json.loads(result.stdout)["tokens"]
        self.clear()
        result = self.run("calibrate", "-f", one, self.model, "-o", self.output, "--json")
        self.expect(result.returncode == 0 and json.loads(result.stdout)["tokens"] < tokens,
                    f"-f before the model: {result.stderr}")
        plain = self.scratch / "plain.txt"
        plain.write_text("<|im_startx>user\nHow are you?<|im_endx>\nFine.\n")
        self.clear()
        longer = json.loads(self.calibrate("-f", plain, "--json", ids=False).stdout)["tokens"]
        self.expect("<|im_start|>" in added and tokens < longer, f"special: {tokens}, {longer}")
        self.clear()
        limited = json.loads(self.calibrate("--max-tokens", "37", "--json").stdout)
        self.expect((limited["tokens"], limited["windows"], limited["text_tokens"]) == (37, 3, 90),
                    f"--max-tokens: {limited}")

    # ---- interruptions ----

    def kills(self, expected):
        counts = self.scratch / "counts"
        self.clear()
        self.calibrate(fault=f"count:{counts}")
        calls = self.counted(counts)
        points = 0
        for op in ("sync", "rename", "unlink"):
            for n in range(1, calls[op] + 1):
                points += 1
                self.clear()
                self.calibrate(fault=f"kill-after:{op}:{n}")
                self.completes(f"killed after {op} {n}", expected)
        # Killed again and again, each time a little later.
        self.clear()
        for n in range(1, 200):
            if self.calibrate(fault="kill-after:rename:4").returncode == 0:
                break
        self.expect(1 < n < 20, f"killed {n} times in a row")
        self.completes("killed again and again", expected)
        for error in ("EIO", "ENOSPC"):
            for op in ("write", "sync", "rename"):
                step = max(1, calls[op] // 9)
                for n in range(1, calls[op] + 1, step):
                    points += 1
                    self.clear()
                    result = self.calibrate(fault=f"{error}:{op}:{n}")
                    if result.returncode != 0:
                        self.fails(f"{error} at {op} {n}", result, [], left=False)
                        names = {p.name for p in self.output.glob("*")}
                        self.expect(not names or names & {STATE, "calibration.json"},
                                    f"{error} at {op} {n}: {names}")
                    self.completes(f"{error} at {op} {n}", expected)
        return points

    def other_plans(self, expected):
        self.clear()
        self.calibrate(fault="kill-after:rename:7")
        before = tree_hash(self.output)
        other = self.scratch / "other.json"
        other.write_text(json.dumps([i * 5 % 4000 for i in range(90)]))
        for name, flags in (("text", {"ids": other}), ("backend", {"flags": ["--backend", "reference"]}),
                            ("tokens", {"flags": ["--max-tokens", "50"]})):
            result = self.calibrate(*flags.get("flags", []), ids=flags.get("ids"))
            self.fails(f"another {name}", result, ["unfinished", "--restart"], left=False)
        self.expect(tree_hash(self.output) == before, "a refused run changed something")
        result = self.calibrate("--restart", ids=other)
        self.expect(result.returncode == 0 and tree_hash(self.output) != expected, "--restart")
        for damaged in ("layer_00.bin.zst", "residual_*.f32", STATE):
            self.clear()
            self.calibrate(fault="kill-after:rename:7")
            path = max(self.output.glob(damaged))  # of residuals the later one
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 255
            path.write_bytes(data)
            self.fails(f"damaged {damaged}", self.calibrate(), [path.name], left=False)
            result = self.calibrate("--restart")
            self.expect(result.returncode == 0 and tree_hash(self.output) == expected,
                        f"--restart over a damaged {damaged}: {result.stderr}")

    def full_disk(self, expected):
        mount = self.scratch / "full"
        mount.mkdir()
        size = sum(p.stat().st_size for p in self.output.glob("*"))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size * 2 // 3}", "tmpfs", mount],
                          capture_output=True, check=False).returncode != 0:
            return False
        try:
            target = mount / "calibration"
            self.fails("full disk", self.calibrate(output=target), ["free some space"], left=False)
            subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
            result = self.calibrate(output=target)
            self.expect(result.returncode == 0 and tree_hash(target) == expected,
                        f"after the full disk: {result.stderr}")
        finally:
            subprocess.run(["umount", mount], check=False)
        return True

    # ---- errors ----

    def errors(self):
        self.clear()
        empty, bad = self.scratch / "empty.txt", self.scratch / "bad.json"
        empty.write_text("")
        self.fails("no text", self.calibrate(ids=False), ["-f TEXT"])
        self.fails("missing text", self.calibrate("-f", self.scratch / "absent", ids=False),
                   ["absent"])
        self.fails("empty text", self.calibrate("-f", empty, ids=False), ["empty.txt", "empty"])
        bad.write_text("[]")
        self.fails("no ids", self.calibrate(ids=bad), ["empty"])
        bad.write_text("[1, 2, 4096]")
        self.fails("foreign id", self.calibrate(ids=bad), ["4096", "index 2"])
        bad.write_bytes(struct.pack("<3i", 1, -7, 2))
        self.fails("negative id", self.calibrate(ids=bad), ["-7", "index 1"])
        self.fails("no model", self.calibrate(model=self.scratch / "nothing"), ["nothing"])
        self.fails("no pack", self.calibrate("--pack", "absent"), ["absent"])
        unfinished = self.scratch / "unfinished"
        shutil.copytree(self.model, unfinished)
        (unfinished / "moepack.unfinished").write_text("")
        self.fails("unfinished model", self.calibrate(model=unfinished), ["not finished"])
        foreign = self.scratch / "foreign"
        foreign.mkdir()
        (foreign / "notes.txt").write_text("mine")
        self.fails("foreign directory", self.calibrate(output=foreign), ["foreign", "not empty"],
                   left=False)
        self.expect([p.name for p in foreign.iterdir()] == ["notes.txt"], "foreign files changed")
        self.fails("a file", self.calibrate(output=foreign / "notes.txt"), ["not a directory"],
                   left=False)
        self.fails("the model itself", self.calibrate(output=self.model), ["not empty"], left=False)
        self.calibrate()
        before = tree_hash(self.output)
        self.fails("finished", self.calibrate(), ["already holds a calibration"], left=False)
        self.expect(tree_hash(self.output) == before, "a finished calibration changed")
        self.clear()
        damaged = self.scratch / "damaged" / self.model.name
        shutil.copytree(self.model, damaged)
        pack = damaged / "packed_experts" / "layer_02.bin"
        data = bytearray(pack.read_bytes())
        for at in range(5000, len(data), 4096):  # every expert
            data[at] ^= 1
        pack.write_bytes(data)
        self.fails("damaged expert", self.calibrate(model=damaged), ["layer_02.bin", "checksum"],
                   left=False)
        self.expect((self.output / STATE).exists(), "damaged expert: finished layers are lost")
        self.completes("continued with the sound model", before)


def decode_q8(tensors, module):
    """Decodes rows of an affine 8-bit matrix, group 64 (MLX): scale * code + bias."""
    _, shape, codes = tensors[module + ".weight"]
    rows, cols = shape[0], shape[1] * 4
    scales = array.array("H", tensors[module + ".scales"][2])
    biases = array.array("H", tensors[module + ".biases"][2])
    groups = len(scales) // rows
    group = cols // groups
    bf16 = calibration_files.bf16
    return [[codes[r * cols + c] * bf16(scales[r * groups + c // group])
             + bf16(biases[r * groups + c // group]) for c in range(cols)] for r in range(rows)]


def main():
    args = options(__doc__, shim=True).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-calibrate-") as scratch:
        test = Tester(args, Path(scratch))
        converted = test.run("convert", args.checkpoint, "-o", test.model, "--quiet")
        test.expect(converted.returncode == 0, converted.stderr)
        test.ids.write_text(json.dumps([i * 977 % 4000 + 11 for i in range(90)]))
        worst = test.router_agrees()
        expected = tree_hash(test.output)
        disk = test.full_disk(expected)
        golden = test.golden_router()
        test.deterministic(expected)
        test.texts()
        test.errors()
        points = 0
        if args.shim is not None:
            points = test.kills(expected)
            test.other_plans(expected)
        return conclude(
            test.failures,
            f"{test.checks} checks, {points} kills and failing calls, router weights to "
            f"{worst:.4f}, {'a full disk' if disk else 'SKIPPED: full disk, no mounting'}, "
            f"{'golden routing' if golden else 'SKIPPED: golden routing, no models'}; ")


if __name__ == "__main__":
    sys.exit(main())

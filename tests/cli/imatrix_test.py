#!/usr/bin/env python3
"""`moepack quantize --calibration` with importance matrices of llama.cpp, written by this script.

The GGUF and the .dat form of the same numbers give the same pack; weighed errors, computed here from
extracted matrices, are smaller than without; an expert that was never used is quantized as without.
Then files that must be refused: exit code 2, one line, no pack left behind.
"""
import argparse
import json
import random
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import gguf_files as gguf
import gguf_model
from damage_test import Runner

EXPERTS, HIDDEN, WIDTH, LAYERS = 4, 64, 96, 5
UNUSED = (2, 3)  # layer, expert
COUNT, CALLS = 256, 16  # powers of two: both forms then divide exactly


class Tester(Runner):
    def check(self, good, what):
        self.runs += 1
        if not good:
            self.failures.append(what)

    def succeeds(self, *args):
        code, out, err, _, _ = self.run(False, *args)
        self.check(code == 0, f"{args}: exit code {code}: {err}")
        return out

    def arguments(self, command, path, against, output):
        assert command == "quantize"
        return ("quantize", self.scratch / "model", "--method", "grid", "--bits", "2",
                "--group-size", "32", "--calibration", path, "--name", "refused", "--quiet")

    def quantize(self, name, *more):
        self.succeeds("quantize", self.scratch / "model", "--bits", "2", "--group-size", "32",
                      "--name", name, *(("--method", "grid") if "--method" not in more else ()),
                      "--quiet", *more)
        pack = self.scratch / "model" / f"packed_experts_{name}"
        return [p.read_bytes() for p in sorted(pack.glob("layer_*.bin"))]

    def matrix(self, pack, layer, expert, projection):
        output = self.scratch / "matrix.f32"
        self.succeeds("extract", self.scratch / "model",
                      f"model.layers.{layer}.mlp.experts.{expert}.{projection}", "--f32", "-o",
                      output, *(("--pack", pack) if pack else ()))
        data = output.read_bytes()
        return struct.unpack(f"<{len(data) // 4}f", data)


def importances(seed=4):
    """{(layer, matrix): mean squares [experts][inputs]}; exact in few bits."""
    source = random.Random(seed)
    out = {}
    for layer in range(LAYERS):
        for matrix, inputs in (("gate", HIDDEN), ("down", WIDTH)):
            out[layer, matrix] = [
                [0.0] * inputs if (layer, expert) == UNUSED else
                [2.0 ** source.randint(-8, 6) for _ in range(inputs)] for expert in range(EXPERTS)]
    for layer in range(LAYERS):
        out[layer, "up"] = out[layer, "gate"]
    return out


def entries(values):
    for (layer, matrix), experts in values.items():
        yield f"blk.{layer}.ffn_{matrix}_exps.weight", experts
    yield "blk.0.attn_qkv.weight", [[1.0] * HIDDEN]  # of a matrix that is not quantized here


def gguf_form(values, **damage):
    tensors = []
    for name, experts in entries(values):
        sums = [v * COUNT for expert in experts for v in expert]
        counts = [float(COUNT if any(expert) else 0) for expert in experts]
        sums, counts = damage.get(name, lambda s, c: (s, c))(sums, counts)
        inputs = len(sums) // max(len(experts), 1)
        tensors.append(gguf.Tensor(f"{name}.in_sum2", [inputs, len(experts)], 0,
                                   struct.pack(f"<{len(sums)}f", *sums)))
        if counts is not None:
            tensors.append(gguf.Tensor(f"{name}.counts", [1, len(counts)], 0,
                                       struct.pack(f"<{len(counts)}f", *counts)))
    keys = [("general.type", gguf.STRING, damage.get("type", "imatrix")),
            ("imatrix.datasets", (gguf.ARRAY, gguf.STRING), ["text"]),
            ("imatrix.chunk_count", gguf.U32, 1), ("imatrix.chunk_size", gguf.U32, 512)]
    return gguf.Writer().write(keys, tensors)


def dat_form(values):
    listed = list(entries(values))
    out = struct.pack("<i", len(listed))
    for name, experts in listed:
        flat = [v * CALLS for expert in experts for v in expert]
        out += struct.pack("<i", len(name)) + name.encode()
        out += struct.pack(f"<ii{len(flat)}f", CALLS, len(flat), *flat)
    return out + struct.pack("<ii", 3, 4) + b"text"


def weighed_error(original, stored, mean_squares):
    inputs = len(mean_squares)
    return sum(mean_squares[i % inputs] * (a - b) ** 2
               for i, (a, b) in enumerate(zip(original, stored)))


def check_packs(test, values):
    (test.scratch / "x.gguf").write_bytes(gguf_form(values))
    (test.scratch / "x.dat").write_bytes(dat_form(values))
    plain = test.quantize("plain")
    packs = {form: test.quantize(form, "--calibration", test.scratch / f"x.{form}")
             for form in ("gguf", "dat")}
    test.check(packs["gguf"] == packs["dat"], "the two forms give different packs")
    test.check(plain != packs["gguf"], "the importance changes nothing")
    for layer, expert in ((0, 1), (4, 2), UNUSED):
        for projection in ("gate_proj", "up_proj", "down_proj"):
            weights = values[layer, projection.split("_")[0]][expert]
            original = test.matrix("", layer, expert, projection)
            errors = {pack: test.matrix(pack, layer, expert, projection)
                      for pack in ("plain", "gguf")}
            what = f"layer {layer} expert {expert} {projection}"
            if (layer, expert) == UNUSED:
                test.check(errors["plain"] == errors["gguf"], f"{what}: unused, but other codes")
                continue
            before, after = (weighed_error(original, errors[p], weights) for p in ("plain", "gguf"))
            test.check(after < 0.9 * before, f"{what}: weighed error {before} to {after}")
    report = json.loads((test.scratch / "model" / "packed_experts_gguf" / "layout.json").read_text())
    text = json.dumps(report)
    test.check("importance matrix" in text, "the pack's report does not name the importance matrix")
    # With nothing to compensate with, gptq still may refine; it must run.
    test.quantize("both", "--calibration", test.scratch / "x.gguf", "--method", "gptq")


def check_refusals(test, values):
    name = "blk.1.ffn_gate_exps.weight"
    down = "blk.3.ffn_down_exps.weight"
    bad = test.scratch / "bad.gguf"
    nan = float("nan")
    cases = {
        "a count less": ({name: lambda s, c: (s, c[:-1])}, (name,)),
        "no counts": ({name: lambda s, c: (s, None)}, (name + ".counts",)),
        "a negative count": ({name: lambda s, c: (s, [-1.0] + c[1:])}, (name,)),
        "a count that is none": ({name: lambda s, c: (s, [nan] + c[1:])}, (name,)),
        "a negative sum": ({name: lambda s, c: ([-1.0] + s[1:], c)}, (name,)),
        "an infinite sum": ({down: lambda s, c: ([float("inf")] + s[1:], c)}, (down,)),
        "another width": ({down: lambda s, c: (s[:EXPERTS * HIDDEN], c)}, (down,)),
        "another type": ({"type": "model"}, ("general.type",))}
    for what, (damage, names) in cases.items():
        test.damages += 1
        bad.write_bytes(gguf_form(values, **damage))
        test.expect(what, "quantize", bad, {2}, ("bad.gguf", *names))
    for missing in ("gate", "down"):
        less = {k: v for k, v in values.items()
                if k != (2, missing) and not (missing == "gate" and k == (2, "up"))}
        test.damages += 1
        bad.write_bytes(gguf_form(less))
        test.expect(f"without {missing}", "quantize", bad, {2}, (f"blk.2.ffn_{missing}_exps",))
    whole = gguf_form(values)
    for cut in [*range(0, 200, 9), *range(200, len(whole), len(whole) // 40)]:
        test.damages += 1
        bad.write_bytes(whole[:cut])
        test.expect(f"GGUF cut at {cut}", "quantize", bad, {2}, ("bad.gguf",))
    dat = test.scratch / "bad.dat"
    whole = dat_form(values)
    end = len(whole) - 12  # the trailer may be missing
    for cut in [*range(0, 100, 7), *range(100, end, end // 40), end - 1]:
        test.damages += 1
        dat.write_bytes(whole[:cut])
        test.expect(f".dat cut at {cut}", "quantize", dat, {2}, ("bad.dat",))
    calls = 4 + 4 + len(name)
    for at in (0, 4, calls, calls + 4):
        for value in (0, -1, 0x7FFFFFFF, -0x80000000):
            if at == calls and value > 0:
                continue  # any number of calls is possible
            test.damages += 1
            dat.write_bytes(whole[:at] + struct.pack("<i", value) + whole[at + 4:])
            test.expect(f".dat with {value} at {at}", "quantize", dat, {2}, ("bad.dat",))
    twice = struct.pack("<i", 2) + 2 * (struct.pack("<i", 1) + b"x" + struct.pack("<iif", 1, 1, 1.0))
    dat.write_bytes(twice)
    test.expect("a name twice", "quantize", dat, {2}, ("bad.dat", "twice"))
    left = [p.name for p in (test.scratch / "model").iterdir() if "refused" in p.name]
    test.check(not left, f"left behind: {left}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-imatrix-") as scratch_name:
        test = Tester(args.program, Path(scratch_name), 1)
        model = gguf_model.Model()
        source = test.scratch / "tiny.gguf"
        source.write_bytes(gguf.Writer().write(
            model.keys(gguf_model.byte_vocabulary(model.config["vocab_size"])), model.gguf))
        test.succeeds("convert", source, "-o", test.scratch / "model", "--quiet")
        values = importances()
        check_packs(test, values)
        check_refusals(test, values)
        shutil.rmtree(test.scratch / "model")
    for failure in test.failures[:30]:
        print("FAILED", failure)
    print(f"{test.damages} damaged files, {test.runs} runs and checks, "
          f"{len(test.failures)} failures; at most {test.most_kib // 1024} MiB")
    return 1 if test.failures or test.damages < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

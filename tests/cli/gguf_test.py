#!/usr/bin/env python3
"""`moepack inspect`, `extract` and `index` on GGUF files made by a writer of its own.

Sound files in both versions and byte orders, with a tensor of every type whose values ggml computed
(tests/golden/ggml); split files from every part; every field of a head replaced by values that it
must not have. With MOEPACK_TEST_MODELS also the models that llama.cpp quantized, whose values were
computed by gguf-py.
"""
import argparse
import hashlib
import json
import os
import random
import struct
import sys
import tempfile
from pathlib import Path

import gguf_files as gguf
from damage_test import Runner

# Where two-byte fields stand in the blocks of a big-endian file; types that are not here have none
# or no defined order. Plain types: (size of an element,).
HALVES = {"q4_0": [0], "q4_1": [0, 2], "q8_0": [0], "q2_K": [80, 82], "q3_K": [108],
          "q4_K": [0, 2], "q5_K": [0, 2], "q6_K": [208], "iq1_s": [0, *range(34, 50, 2)],
          "iq2_xs": [*range(0, 66, 2)], "iq2_s": [0], "iq3_s": [0], "iq4_nl": [0],
          "iq4_xs": [0, 2], "tq1_0": [52], "tq2_0": [64], "mxfp4": [], "nvfp4": [], "q1_0": [0],
          "q2_0": [0]}
PLAIN = {"f32": (0, 4), "f16": (1, 2), "bf16": (30, 2)}

# SHA-256 of the float32 values, little-endian, as gguf-py's `dequantize` gives them.
GOLDEN = {
    "small-moe-Q3-gguf/small-moe-Q3-00003-of-00003.gguf": {
        "output.weight": ("Q6_K", "ec5781eee91ad2b386f96c9be33dc2b86e10760f25ca26d9de40eafc71653d07"),
        "token_embd.weight":
            ("Q8_0", "2351a0c174918cbfe3c1cbf2fc18a93038a1c21e1cb737fdb3a39cd5c7de01d4"),
        "blk.0.ffn_down_exps.weight":
            ("IQ4_XS", "1e5584a2920de0b38532b9d38255ed74715e571eb43da96ce4b2ef25a6c005de"),
        "blk.0.ffn_gate_exps.weight":
            ("IQ3_XXS", "5b6540f99c72eb5b07906363a16725df004d35c27318150258dfa9f2c9842751"),
        "blk.0.ffn_gate_inp.weight":
            ("F32", "f0e20709c84ff943d034a0de27d57a0df28bafd7e9b77cc5704ea245023bf93b"),
        "blk.0.ssm_alpha.weight":
            ("Q3_K", "719d533d5c806d578d314b30b2771d142f9d8ff2a235c09ae56de9e3e05c6e5a"),
        "blk.5.ffn_down_exps.weight":
            ("Q5_K", "78f084f9b18e96aa1291308489726d5d6021b46c4061dae5cac2c87aca88653c")},
    "small-moe-Q4_K_M.gguf": {
        "output.weight": ("Q6_K", "ec5781eee91ad2b386f96c9be33dc2b86e10760f25ca26d9de40eafc71653d07"),
        "token_embd.weight":
            ("Q4_K", "9c403480450b68e65b9bbb573516e545ece8515b00155438f6f9f266f7fa70a4"),
        "blk.0.ffn_gate_inp.weight":
            ("F32", "f0e20709c84ff943d034a0de27d57a0df28bafd7e9b77cc5704ea245023bf93b")}}


class GgufRunner(Runner):
    """Runner.expect with the commands that read GGUF files."""

    def arguments(self, command, path, against, output):
        return {"inspect": ("inspect", path, "--tensors"), "index": ("index", path, "-o", output),
                "extract": ("extract", path, "blk.1.ffn_up_exps.weight", "-o", output, "--f32")
                }[command]

    def output_of(self, *args):
        """The bytes that a command wrote to -o, and its exit code 0 checked."""
        output = self.scratch / "written"
        code, out, err, _, _ = self.run(False, *args, "-o", output)
        self.check(code == 0, f"{args}: {code} {err}")
        if code != 0:
            return b"", out
        content = output.read_bytes()
        output.unlink()
        return content, out

    def json_of(self, *args):
        code, out, err, _, _ = self.run(False, *args, "--json")
        self.check(code == 0, f"{args}: {code} {err}")
        return json.loads(out) if code == 0 else {}


# ---- every type ----

def swapped(data, block, halves):
    out = bytearray(data)
    for start in range(0, len(data), block):
        for at in halves:
            out[start + at:start + at + 2] = data[start + at:start + at + 2][::-1]
    return bytes(out)


def plain_tensors(big_endian):
    """(tensor, values as float32 bytes, little-endian bytes) of the plain float types."""
    values = [0.0, -1.5, 3.0, 65504.0, 6.103515625e-05, -0.25]
    floats = struct.pack("<6f", *values)
    for name, (kind, size) in PLAIN.items():
        if name == "bf16":
            little = b"".join(struct.pack("<f", v)[2:] for v in values)
            wanted = b"".join(b"\0\0" + little[i:i + 2] for i in range(0, 12, 2))
        else:
            little = struct.pack("<6" + {"f32": "f", "f16": "e"}[name], *values)
            wanted = floats
        stored = (b"".join(little[i:i + size][::-1] for i in range(0, len(little), size))
                  if big_endian else little)
        yield gguf.Tensor(f"plain.{name}", [3, 2], kind, stored), wanted, little


def check_types(runner, golden):
    index = json.loads((golden / "index.json").read_text())
    for version, big_endian in ((2, False), (3, False), (3, True)):
        tensors, wanted = [], {}
        for name, entry in index.items():
            if big_endian and name not in HALVES:
                continue
            raw = (golden / f"{name}.bin").read_bytes()
            stored = swapped(raw, entry["block_bytes"], HALVES[name]) if big_endian else raw
            tensors.append(gguf.Tensor(f"{name}.weight", [entry["block_elems"] * 2,
                                                          entry["n_blocks"] // 2],
                                       entry["id"], stored))
            wanted[f"{name}.weight"] = (raw, (golden / f"{name}.f32").read_bytes())
        for tensor, values, little in plain_tensors(big_endian):
            tensors.append(tensor)
            wanted[tensor.name] = (little, values)
        path = runner.scratch / "types.gguf"
        path.write_bytes(gguf.Writer(version, big_endian).write(
            [("general.architecture", gguf.STRING, "types")], tensors))
        what = f"version {version}{' big-endian' if big_endian else ''}"
        for name, (raw, values) in wanted.items():
            got, _ = runner.output_of("extract", path, name)
            runner.check(got == raw, f"{what}: raw bytes of {name}")
            got, _ = runner.output_of("extract", path, name.removesuffix(".weight"), "--f32")
            runner.check(got == values, f"{what}: values of {name}")
        found = runner.json_of("inspect", path, "--tensors")
        runner.check(found.get("kind") == "gguf" and found["gguf"]["version"] == version and
                     found["gguf"]["byte_order"] == ("big" if big_endian else "little") and
                     found["gguf"]["num_tensors"] == len(tensors), f"{what}: {str(found)[:200]}")
        listed = {t["name"]: (t["dtype"], t["shape"], t["bytes"]) for t in found.get("tensors", [])}
        for tensor in tensors:
            runner.check(listed.get(tensor.name) == (
                tensor.name.removeprefix("plain.").removesuffix(".weight").upper(), tensor.ne[::-1],
                len(tensor.data)), f"{what}: {tensor.name} listed as {listed.get(tensor.name)}")


# ---- experts ----

def moe_tensors(fused):
    """Two layers with three experts each, random Q4_0 and F16 weights, and a few others."""
    source = random.Random(5)
    tensors = [gguf.Tensor("token_embd.weight", [64, 5], 0, source.randbytes(64 * 5 * 4))]
    for layer in (1, 3):
        def stack(name, ne, kind, size, layer=layer):
            tensors.append(gguf.Tensor(f"blk.{layer}.{name}", ne, kind, source.randbytes(size)))
        if fused:
            stack("ffn_gate_up_exps.weight", [64, 64, 3], 2, 64 * 64 * 3 // 32 * 18)
        else:
            stack("ffn_gate_exps.weight", [64, 32, 3], 2, 64 * 32 * 3 // 32 * 18)
            stack("ffn_up_exps.weight", [64, 32, 3], 2, 64 * 32 * 3 // 32 * 18)
        stack("ffn_down_exps.weight", [32, 64, 3], 1, 64 * 32 * 3 * 2)
        stack("ffn_down_exps.bias", [64, 3], 0, 64 * 3 * 4)
        stack("attn_norm.weight", [64], 0, 64 * 4)
    return tensors


MOE_KEYS = [("general.architecture", gguf.STRING, "qwen3moe"),
            ("qwen3moe.expert_count", gguf.U32, 3), ("qwen3moe.rope.freq_base", gguf.F32, 1e6),
            ("tokenizer.ggml.tokens", (gguf.ARRAY, gguf.STRING), ["a", "b\n", "c" * 70]),
            ("tokenizer.ggml.scores", (gguf.ARRAY, gguf.F32), [0.5, -1.0]),
            ("some.flags", (gguf.ARRAY, gguf.BOOL), [1, 0, 1]), ("some.flag", gguf.BOOL, 1),
            ("general.alignment", gguf.U32, 64)]


def check_index(runner, path, tensors, fused):
    text, _ = runner.output_of("index", path)
    index = json.loads(text or "{}")
    runner.check(index.get("model_path") == str(path.parent), f"model_path {text[:80]}")
    runner.check(list(index["expert_reads"]) == ["1", "3"], f"layers {list(index['expert_reads'])}")
    data = {t.name: t for t in tensors}
    for layer, reads in index["expert_reads"].items():
        runner.check(list(reads) == ["gate_proj.weight", "up_proj.weight", "down_proj.weight",
                                     "down_proj.bias"], f"components {list(reads)}")
        for component, entry in reads.items():
            projection, part = component.split(".")
            name = f"blk.{layer}.ffn_{projection.removesuffix('_proj')}_exps.{part}"
            half = None
            if fused and projection != "down_proj":
                half = ("gate_proj", "up_proj").index(projection)
                name = f"blk.{layer}.ffn_gate_up_exps.weight"
            tensor = data[name]
            runner.check(entry["total_size"] == len(tensor.data), f"{component}: {entry}")
            size = len(tensor.data) // 3
            for expert in range(3):
                wanted = tensor.data[expert * size:(expert + 1) * size]
                if half is not None:
                    wanted = wanted[half * size // 2:(half + 1) * size // 2]
                start = entry["abs_offset"] + expert * entry["expert_stride"]
                content = (path.parent / entry["file"]).read_bytes()
                runner.check(content[start:start + entry["expert_size"]] == wanted,
                             f"{path.name} layer {layer} {component} expert {expert}")
            row = [32 if not fused or half is not None else 64, 36]
            shapes = {"weight": [3, *row], "bias": [3, 64]}
            if projection == "down_proj":
                shapes["weight"] = [3, 64, 32]
            runner.check(entry["shape"] == shapes[part], f"{component}: shape {entry['shape']}")
            runner.check((entry["dtype"], entry.get("ggml_type")) == (
                ("F32", None) if part == "bias" else
                ("F16", None) if projection == "down_proj" else ("U8", "Q4_0")),
                f"{component}: {entry}")


def check_experts(runner):
    for fused in (False, True):
        tensors = moe_tensors(fused)
        path = runner.scratch / "moe.gguf"
        path.write_bytes(gguf.Writer(alignment=64).write(MOE_KEYS, tensors))
        check_index(runner, path, tensors, fused)
        found = runner.json_of("inspect", path).get("gguf", {})
        runner.check([(e["layer"], e["num_experts"]) for e in found.get("layers", [])] ==
                     [(1, 3), (3, 3)], f"layers {found.get('layers')}")
        keys = {k["key"]: k for k in found.get("metadata", [])}
        runner.check(keys.get("tokenizer.ggml.tokens", {}).get("count") == 3 and
                     keys["qwen3moe.expert_count"]["value"] == "3", f"metadata {keys}")
    wrong = {
        "a projection less": [t for t in tensors if t.name != "blk.3.ffn_down_exps.weight"],
        "two dimensions": [gguf.Tensor(t.name, [t.ne[0], t.ne[1] * 3], t.type, t.data)
                           if t.name == "blk.3.ffn_down_exps.weight" else t for t in tensors],
        "other experts": [gguf.Tensor(t.name, [t.ne[0], t.ne[1] * 3, 1], t.type, t.data)
                          if t.name == "blk.3.ffn_down_exps.weight" else t for t in tensors],
        "four dimensions": [gguf.Tensor(t.name, [*t.ne[:2], 1, t.ne[2]], t.type, t.data)
                            if t.name == "blk.3.ffn_down_exps.weight" else t for t in tensors],
        "fused of one dimension": [t for t in moe_tensors(True) if "gate_up" not in t.name]
        + [gguf.Tensor(f"blk.{layer}.ffn_gate_up_exps.weight", [3], 0, bytes(12))
           for layer in (1, 3)],
        "fused and separate": tensors + moe_tensors(False)[1:2],
        "no experts": tensors[:1]}
    path = runner.scratch / "wrong.gguf"
    for what, changed in [*wrong.items(), ("other experts without their number",
                                           wrong["other experts"])]:
        keys = MOE_KEYS if "without" not in what else MOE_KEYS[2:]
        path.write_bytes(gguf.Writer(alignment=64).write(keys, changed))
        runner.expect(what, "index", path, {2}, ("wrong.gguf",))
        runner.expect(what, "inspect", path, {0})
    path.write_bytes(gguf.Writer(alignment=64, big_endian=True).write(MOE_KEYS, tensors))
    runner.expect("big-endian", "index", path, {2}, ("wrong.gguf", "big-endian"))


# ---- split files ----

def write_split(directory, tensors):
    directory.mkdir(exist_ok=True)
    chunks = ([], tensors[:4], tensors[4:])
    for number, chunk in enumerate(chunks):
        keys = MOE_KEYS[:-1] if number == 0 else []
        (directory / gguf.part_name("moe", number, 3)).write_bytes(
            gguf.Writer().write(keys + gguf.split_keys(number, 3, len(tensors)), chunk))


def check_split(runner):
    tensors = moe_tensors(False)
    folder = runner.scratch / "split"
    write_split(folder, tensors)
    parts = [folder / gguf.part_name("moe", i, 3) for i in range(3)]
    for part in parts:
        check_index(runner, part, tensors, False)
        for tensor in tensors[::3]:
            got, _ = runner.output_of("extract", part, tensor.name)
            runner.check(got == tensor.data, f"{part.name}: {tensor.name}")
    names = {"missing": parts[1].unlink, "cut": lambda: parts[1].write_bytes(b"GGUF"),
             "of another place": lambda: parts[1].write_bytes(parts[0].read_bytes()),
             "of another model": lambda: parts[1].write_bytes(
                 gguf.Writer().write(gguf.split_keys(1, 3, 99), tensors[:2])),
             "whole": lambda: parts[1].write_bytes(gguf.Writer().write([], tensors[:4]))}
    for what, damage in names.items():
        damage()
        runner.damages += 1
        for given in (parts[0], parts[2]):
            for command in ("inspect", "extract", "index"):
                runner.expect(f"part 2 {what}", command, given, {2}, (parts[1].name,))
        write_split(folder, tensors)
    parts[1].rename(folder / "other.gguf")
    runner.expect("a part under another name", "inspect", folder / "other.gguf", {2},
                  ("other.gguf", "-00002-of-00003.gguf"))


# ---- damage ----

WRONG = {
    "magic": [0, 0x46554747 ^ 1, 0x47475546, 0x46554746],
    "version": [0, 1, 4, 0x01000000, 0xFFFFFFFF],
    "tensor count": [1 << 20, 1 << 31, 1 << 62, 1 << 63, (1 << 64) - 1],
    "key count": [0, 3, 65537, 1 << 31, 1 << 62, 1 << 63, (1 << 64) - 1],
    "key length": [0, 65536, 1 << 31, 1 << 63, (1 << 64) - 1],
    "string length": [1 << 20, (1 << 30) + 1, 1 << 63, (1 << 64) - 1],
    "value type": [9, 13, 255, 0x80000000, 0xFFFFFFFF],
    "element type": [9, 13, 255, 0x80000000, 0xFFFFFFFF],
    "array length": [1 << 20, (1 << 30) + 1, 1 << 61, 1 << 63, (1 << 64) - 1],
    "bool": [2, 128, 255],
    "name length": [0, 64, 1 << 31, 1 << 63, (1 << 64) - 1],
    "dimensions": [5, 255, 0x80000000, 0xFFFFFFFF],
    "dimension": [0, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1],
    "tensor type": [4, 5, 31, 36, 43, 99, 144, 0x80000000, 0xFFFFFFFF],
    "offset": [1, 32, 1 << 40, 1 << 63, (1 << 64) - 64, (1 << 64) - 1],
}
CODE_OF_SIZE = {1: "B", 4: "I", 8: "Q"}


def damage_cases(big_endian):
    writer = gguf.Writer(big_endian=big_endian, alignment=64)
    data = writer.write(MOE_KEYS, moe_tensors(False))
    for field in writer.fields:
        values = list(WRONG[field.kind])
        if field.kind in ("key length", "name length"):
            values.append(field.value + (1 << 17))
        for value in values:
            packed = struct.pack(writer.order + CODE_OF_SIZE[field.size], value)
            changed = data[:field.offset] + packed + data[field.offset + field.size:]
            if changed == data:
                continue
            yield f"{field.kind} of {field.owner or 'the file'} at {field.offset} = {value}", changed
    head = len(writer.head)
    for cut in (0, 1, 3, 4, 7, 8, 15, 16, 23, 24, head // 3, head // 2, head - 1, head, head + 1,
                len(data) // 2, len(data) - 300):
        yield f"cut at {cut}", data[:cut]
    alignment = data.index(b"general.alignment") + len(b"general.alignment") + 4
    for value in (0, 1, 4, 24, 65, 0xFFFFFFFF):
        packed = struct.pack(writer.order + "I", value)
        yield f"alignment {value}", data[:alignment] + packed + data[alignment + 4:]
    twice = MOE_KEYS + [("some.flag", gguf.U8, 1)]
    yield "a key twice", gguf.Writer(big_endian=big_endian, alignment=64).write(twice, [])
    tensors = moe_tensors(False)
    yield "a tensor twice", gguf.Writer(big_endian=big_endian, alignment=64).write(
        MOE_KEYS, tensors + tensors[:1])
    yield "an empty file name's worth", b"\0" * 64


def check_damage(runner):
    path = runner.scratch / "damaged.gguf"
    for big_endian in (False, True):
        path.write_bytes(gguf.Writer(big_endian=big_endian, alignment=64).write(
            MOE_KEYS, moe_tensors(False)))
        runner.expect("undamaged", "inspect", path, {0})
        runner.expect("undamaged", "extract", path, {0})
        for what, content in damage_cases(big_endian):
            runner.damages += 1
            path.write_bytes(content)
            for command in ("inspect", "extract", "index"):
                runner.expect(f"{'big' if big_endian else 'little'}: {what}", command, path, {2},
                              ("damaged.gguf",))


def check_huge(runner):
    """Much that a file really has: a sparse data section, and a vocabulary."""
    path = runner.scratch / "huge.gguf"
    tokens = [f"token {i}" for i in range(250_000)]
    data = gguf.Writer().write([("tokenizer.ggml.tokens", (gguf.ARRAY, gguf.STRING), tokens),
                                ("tokenizer.ggml.merges", (gguf.ARRAY, gguf.STRING), tokens)], [])
    head = bytearray(data)
    struct.pack_into("<Q", head, 8, 1)
    name = b"blk.1.ffn_up_exps.weight"
    head += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 1 << 20, 1 << 16, 0, 0)
    path.write_bytes(head)
    os.truncate(path, (len(head) + 31) // 32 * 32 + (4 << 36))
    before = runner.most_kib
    runner.expect("a vocabulary and a tensor of 275 GB", "inspect", path, {0})
    # The sanitizers keep freed memory and shadows of everything.
    most = (320 if runner.sanitized else 80) * 1024
    runner.check(runner.most_kib <= max(before, most), f"{runner.most_kib} KiB")


def check_models(runner, root):
    for file, tensors in GOLDEN.items():
        path = root / file
        if not path.exists():
            print(f"SKIPPED {file}: not under {root}")
            continue
        parts = sorted(path.parent.glob("*-of-*.gguf")) if "-of-" in file else [path]
        places = {}
        for part in parts:
            _, infos = gguf.read_head(part)
            places.update({n: (part, *info) for n, info in infos.items()})
        listed = runner.json_of("inspect", path, "--tensors")
        runner.check({t["name"]: (t["file"], t["offset"], t["shape"]) for t in listed["tensors"]} ==
                     {n: (p.name, offset, ne[::-1]) for n, (p, ne, _, offset) in places.items()},
                     f"{file}: tensors are listed at other places")
        for name, (kind, digest) in tensors.items():
            entry = next(t for t in listed["tensors"] if t["name"] == name)
            runner.check(entry["dtype"] == kind, f"{file} {name}: {entry['dtype']}")
            for part in parts:
                got, _ = runner.output_of("extract", part, name, "--f32")
                runner.check(hashlib.sha256(got).hexdigest() == digest, f"{file} {name}: values")
            got, _ = runner.output_of("extract", path, name)
            with open(places[name][0], "rb") as stored:
                stored.seek(places[name][3])
                runner.check(stored.read(len(got)) == got and len(got) == entry["bytes"],
                             f"{file} {name}: bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--golden", required=True, type=Path, help="tests/golden/ggml")
    parser.add_argument("--every", type=int, default=1, help="of the damaged runs, only every Nth")
    parser.add_argument("--sanitized", action="store_true", help="the program takes more memory")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-gguf-") as scratch_name:
        runner = GgufRunner(args.program, Path(scratch_name), args.every)
        runner.sanitized = args.sanitized
        runner.every = 1
        check_types(runner, args.golden)
        check_experts(runner)
        check_split(runner)
        check_huge(runner)
        runner.every = args.every
        check_damage(runner)
        if os.environ.get("MOEPACK_TEST_MODELS"):
            check_models(runner, Path(os.environ["MOEPACK_TEST_MODELS"]))
        else:
            print("SKIPPED: needs small-moe-Q3-gguf and small-moe-Q4_K_M.gguf; set "
                  "MOEPACK_TEST_MODELS to the folder that holds them")
    for failure in runner.failures[:30]:
        print("FAILED", failure)
    print(f"{runner.damages} damaged inputs, {runner.runs} runs and checks, "
          f"{len(runner.failures)} failures; at most {runner.most_kib // 1024} MiB")
    return 1 if runner.failures or runner.damages < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

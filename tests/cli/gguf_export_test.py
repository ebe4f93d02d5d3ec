#!/usr/bin/env python3
"""`moepack export --gguf`: every tensor of the file against the checkpoint that the model came from.

The files are read and the checkpoints transformed by code that shares nothing with the program
(gguf_files.py, gguf_model.py): norms 1 + w, -exp(A_log), tiled V heads, stacked experts. A model that
came from GGUF gives its tensors back byte for byte; every file is converted again and computes what
the model computes. Then what must be refused: exit code 2, one line, nothing left.
"""
import argparse
import json
import math
import os
import random
import shutil
import struct
import tempfile
import traceback
from pathlib import Path

import checkpoint_files as files
import gguf_files as gguf
import gguf_model
from cli_runner import CliRunner, conclude

F32, F16, Q4_1, Q5_1, BF16 = 0, 1, 3, 7, 30
TOLERANCE = 3e-6  # where the columns of ssm_out are summed in another order
BLOCK = {Q4_1: 20, Q5_1: 24}
TYPES = {"F32": (F32, 4), "BF16": (BF16, 2), "F16": (F16, 2)}
GATES = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")
PROJECTIONS = ("gate", "up", "down")


def widened(dtype, data):
    """float32 bytes of plain floats."""
    if dtype == "F32":
        return data
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def mapped(function, data):
    values = struct.unpack(f"<{len(data) // 4}f", data)
    return struct.pack(f"<{len(values)}f", *(gguf_model.f32(function(v)) for v in values))


def canonical(name):
    return name.removeprefix("model.language_model.").removeprefix("model.")


class Expected:
    """{GGUF name: (ne, type, bytes)} of a checkpoint in transformers' conventions, plain floats."""

    def __init__(self, tensors, config):
        self.config = config
        self.heads = gguf_model.Heads(config)
        self.out = {}
        self.experts = {}
        for name, (dtype, shape, data) in tensors.items():
            self.add(canonical(name), dtype, shape, data)
        for (target, kind), parts in self.experts.items():
            shape, _ = parts[0]
            data = b"".join(parts[e][1] for e in sorted(parts))
            self.out[target] = ([*shape[::-1], len(parts)], kind, data)

    def put(self, target, shape, kind, data):
        self.out[target] = (shape[::-1], kind, data)

    def tiled(self, data, unit):
        """`unit`: bytes of a head."""
        out = bytearray(data)
        for old in range(self.heads.values):
            new = self.heads.place(old)
            out[new * unit:(new + 1) * unit] = data[old * unit:(old + 1) * unit]
        return bytes(out)

    def reordered(self, rest, shape, size, data):
        if rest.endswith("out_proj.weight"):
            row = shape[-1] * size
            return b"".join(self.tiled(data[i:i + row], self.heads.dim * size)
                            for i in range(0, len(data), row))
        row = math.prod(shape[1:]) * size
        if "in_proj_qkv." in rest or "conv1d" in rest:
            keys = 2 * self.heads.keys * self.heads.key_dim * row
            return data[:keys] + self.tiled(data[keys:], self.heads.dim * row)
        return self.tiled(data, row * (self.heads.dim if "in_proj_z" in rest else 1))

    def add(self, name, dtype, shape, data):
        kind, size = TYPES[dtype]
        outer = {"embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight"}
        if name in outer:
            return self.put(outer[name], shape, kind, data)
        if name == "norm.weight":
            return self.put("output_norm.weight", shape, F32,
                            mapped(lambda v: 1 + v, widened(dtype, data)))
        layer, rest = name.removeprefix("layers.").split(".", 1)
        block = f"blk.{layer}."
        if rest.startswith("mlp.experts."):
            return self.add_experts(block, rest.split("."), kind, shape, data)
        if rest == "linear_attn.in_proj_qkvz.weight":
            return self.add_qkvz(block, kind, size, shape, data)
        if rest == "linear_attn.in_proj_ba.weight":
            return self.put(block + "ssm_ba.weight", shape, kind, data)
        target = block + gguf_model.RESIDENTS[rest][0]
        if any(part in rest for part in gguf_model.REORDERED):
            data = self.reordered(rest, shape, size, data)
        if "conv1d" in rest:
            shape = [shape[0], shape[2]]
        if len(shape) > 1 and rest not in GATES and "conv1d" not in rest:
            return self.put(target, shape, kind, data)
        data = widened(dtype, data)
        if gguf_model.adds_one(name):
            data = mapped(lambda v: 1 + v, data)
        if rest.endswith("A_log"):
            data = mapped(lambda v: -math.exp(v), data)
        return self.put(target, shape[1:] if "shared_expert_gate" in rest else shape, F32, data)

    def add_experts(self, block, parts, kind, shape, data):
        """parts: mlp, experts, then an expert's number and projection, or all in one tensor."""
        if parts[2].isdigit():
            target = f"{block}ffn_{parts[3].removesuffix('_proj')}_exps.weight"
            self.experts.setdefault((target, kind), {})[int(parts[2])] = (shape, data)
            return
        size = len(data) // shape[0]
        for expert in range(shape[0]):
            one = data[expert * size:(expert + 1) * size]
            if parts[2] == "down_proj":
                pieces = {"down": (shape[1:], one)}
            else:
                half = [shape[1] // 2, shape[2]]
                pieces = {"gate": (half, one[:size // 2]), "up": (half, one[size // 2:])}
            for which, piece in pieces.items():
                target = f"{block}ffn_{which}_exps.weight"
                self.experts.setdefault((target, kind), {})[expert] = piece

    def add_qkvz(self, block, kind, size, shape, data):
        row = shape[1] * size
        rows = [data[i:i + row] for i in range(0, len(data), row)]
        qkv, z = self.heads.split_qkvz(rows, 1)
        self.put(block + "attn_qkv.weight", [len(qkv), shape[1]], kind, b"".join(qkv))
        self.put(block + "attn_gate.weight", [len(z), shape[1]], kind, b"".join(z))


def read_gguf(path):
    """(metadata, {name: (ne, type, bytes)})"""
    metadata, heads = gguf.read_head(path)
    data = path.read_bytes()
    places = sorted(offset for _, _, offset in heads.values()) + [len(data)]
    ends = dict(zip(places, places[1:]))
    tensors = {}
    for name, (ne, kind, offset) in heads.items():
        assert offset % 32 == 0, f"{name} at {offset}"
        tensors[name] = (ne, kind, data[offset:ends[offset]])
    return metadata, tensors


def decode_blocks(kind, data):
    """The float32 values of Q4_1 or Q5_1 blocks."""
    out = []
    for at in range(0, len(data), BLOCK[kind]):
        d, m = struct.unpack_from("<ee", data, at)
        high = struct.unpack_from("<I", data, at + 4)[0] if kind == Q5_1 else 0
        nibbles = data[at + BLOCK[kind] - 16:at + BLOCK[kind]]
        for i in range(32):
            code = nibbles[i % 16] >> 4 * (i // 16) & 15 | (high >> i & 1) << 4
            out.append(gguf_model.f32(gguf_model.f32(d * code) + m))
    return out


def relative_error(found, wanted):
    if len(found) != len(wanted) or not wanted:
        return math.inf
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(found, wanted)))
    return difference / math.sqrt(sum(b * b for b in wanted))


class Test(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.checkpoint = args.checkpoint
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([i * 7 % 256 for i in range(40)]))
        self.vocabulary = gguf_model.byte_vocabulary(gguf_model.CONFIG["vocab_size"])

    def export(self, model, name="out.gguf", *flags):
        """(metadata, tensors) of the file, which stays."""
        path = self.scratch / name
        path.unlink(missing_ok=True)
        result = self.succeeds("export", "--gguf", model, "-o", path, "--quiet", *flags)
        return read_gguf(path) if result.returncode == 0 else ({}, {})

    def convert(self, source, name, *flags):
        model = self.scratch / name
        shutil.rmtree(model, ignore_errors=True)
        self.succeeds("convert", source, "-o", model, "--quiet", *flags)
        return model

    def logits(self, model, *flags):
        output = self.scratch / "logits.f32"
        self.succeeds("logits", model, "--token-ids", self.ids, "-o", output, "--backend",
                      "reference", *flags)
        data = output.read_bytes() if output.exists() else b""
        output.unlink(missing_ok=True)
        return struct.unpack(f"<{len(data) // 4}f", data)

    def same_tensors(self, what, found, wanted, ulps=()):
        """`ulps`: ends of names whose values may differ by rounding."""
        self.expect(set(found) == set(wanted),
                    f"{what}: tensors {sorted(set(found) ^ set(wanted))[:6]}")
        for name in sorted(set(found) & set(wanted)):
            (ne, kind, data), (wanted_ne, wanted_kind, wanted_data) = found[name], wanted[name]
            self.expect((ne, kind) == (wanted_ne, wanted_kind),
                        f"{what}: {name} is {ne} {kind}, not {wanted_ne} {wanted_kind}")
            padding = data[len(wanted_data):]
            self.expect(len(padding) < 32 and not any(padding), f"{what}: {name} is padded wrongly")
            data = data[:len(wanted_data)]
            if name.endswith(tuple(ulps)) and ulps:
                values = [struct.unpack(f"<{len(d) // 4}f", d) for d in (data, wanted_data)]
                self.expect(relative_error(*values) < 1e-6, f"{what}: {name}: {values}")
            else:
                self.expect(data == wanted_data, f"{what}: {name} has other bytes")

    def same_logits(self, what, model, name, exact):
        """The exported file computes what the model computes."""
        again = self.convert(self.scratch / name, "again")
        found, wanted = self.logits(again), self.logits(model)
        error = relative_error(found, wanted)
        self.expect(error == 0 if exact else error <= TOLERANCE, f"{what}: logits are off by {error}")
        shutil.rmtree(again, ignore_errors=True)

    def write_gguf(self, name, model):
        path = self.scratch / name
        path.write_bytes(gguf.Writer().write(model.keys(self.vocabulary), model.gguf))
        return path

    def write_twin(self, name, model, tokenizer):
        """The float32 checkpoint of the model's values."""
        path = self.scratch / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps(model.config))
        files.write_tensors(path / files.SHARD, model.twin)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tokenizer / file, path)
        return path


def split_gate_up(tensors):
    """Of a GGUF model, gate and up as tensors of their own."""
    out = {}
    for tensor in tensors:
        if "gate_up_exps" not in tensor.name:
            out[tensor.name] = (list(tensor.ne), tensor.type, tensor.data)
            continue
        cols, rows, experts = tensor.ne
        size = len(tensor.data) // experts
        for which, begin in (("gate", 0), ("up", size // 2)):
            data = b"".join(tensor.data[e * size + begin:e * size + begin + size // 2]
                            for e in range(experts))
            out[tensor.name.replace("gate_up", which)] = ([cols, rows // 2, experts], tensor.type,
                                                          data)
    return out


def check_from_gguf(test, what, config):
    """A GGUF model, converted and exported: the same tensors and keys. Returns the model directory."""
    model = gguf_model.Model(config)
    source = test.write_gguf(f"{what}.source.gguf", model)
    directory = test.convert(source, f"{what}.model")
    metadata, tensors = test.export(directory, f"{what}.gguf")
    test.same_tensors(what, tensors, split_gate_up(model.gguf))
    wanted, _ = gguf.read_head(source)
    for key, value in wanted.items():
        if key == "general.name":
            continue
        test.expect(metadata.get(key) == value, f"{what}: key {key} is {metadata.get(key)!r:.200}")
    test.same_logits(what, directory, f"{what}.gguf", exact=True)
    first = (test.scratch / f"{what}.gguf").read_bytes()
    test.export(directory, "threads.gguf", "-t", "7")
    test.expect((test.scratch / "threads.gguf").read_bytes() == first,
                f"{what}: seven threads write other bytes")
    (test.scratch / "threads.gguf").unlink()
    return directory


def check_from_floats(test, what, config, tokenizer, exact):
    """The same values as a float32 checkpoint in transformers' conventions."""
    model = gguf_model.Model(config)
    twin = test.write_twin(f"{what}.twin", model, tokenizer)
    directory = test.convert(twin, f"{what}.floats")
    _, tensors = test.export(directory, f"{what}.floats.gguf")
    test.same_tensors(f"{what} floats", tensors, Expected(model.twin, config).out, ("ssm_a",))
    test.same_logits(f"{what} floats", directory, f"{what}.floats.gguf", exact)
    metadata, _ = gguf.read_head(test.scratch / f"{what}.floats.gguf")
    sections = [key for key in metadata if key.endswith(".rope.dimension_sections")]
    test.expect(sections == ([] if config["model_type"] == "qwen3_next" else
                             ["qwen35moe.rope.dimension_sections"]), f"{what}: {sections}")
    return directory


def check_architectures(test):
    tokenizer = check_from_gguf(test, "qwen35", gguf_model.CONFIG)
    check_from_floats(test, "qwen35", gguf_model.CONFIG, tokenizer, exact=False)
    # As many key heads as value heads: there is no other order.
    even = dict(gguf_model.CONFIG, linear_num_key_heads=8)
    check_from_floats(test, "even", even, tokenizer, exact=True)
    # No period of attention layers.
    uneven = dict(even, layer_types=["linear_attention", "full_attention", "full_attention",
                                     "linear_attention", "linear_attention"])
    directory = check_from_floats(test, "uneven", uneven, tokenizer, exact=True)
    metadata, _ = gguf.read_head(test.scratch / "uneven.floats.gguf")
    test.expect(metadata.get("qwen35moe.attention.recurrent_layers") == [1, 0, 0, 1, 1],
                "uneven: recurrent_layers")
    test.expect("qwen35moe.full_attention_interval" not in metadata, "uneven: an interval")
    again = test.convert(test.scratch / "uneven.floats.gguf", "again")
    test.expect(json.loads((again / "config.json").read_text())["layer_types"] ==
                json.loads((directory / "config.json").read_text())["layer_types"],
                "uneven: layer_types")
    following = dict(gguf_model.CONFIG, model_type="qwen3_next", linear_num_key_heads=4,
                     norm_topk_prob=True)
    tokenizer = check_from_gguf(test, "next", following)
    check_from_floats(test, "next", following, tokenizer, exact=True)


def packed_values(test, model, name, pack):
    """Decoded by the program's scalar decoder, which other tests compare with other programs."""
    output = test.scratch / "values"
    test.succeeds("extract", model, name, "-o", output, "--f32", *pack)
    data = output.read_bytes()
    output.unlink()
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def check_expert_values(test, what, model, tensors, kinds, pack=()):
    """Experts of some layers; `kinds`: the type of each projection."""
    for layer in (0, 3):
        for projection, kind in zip(PROJECTIONS, kinds):
            name = f"blk.{layer}.ffn_{projection}_exps.weight"
            (cols, rows, experts), found, data = tensors[name]
            test.expect(found == kind, f"{what}: {name} has type {found}, not {kind}")
            size = rows * cols // 32 * BLOCK[kind]
            for expert in (0, experts - 1):
                wanted = packed_values(
                    test, model, f"model.layers.{layer}.mlp.experts.{expert}.{projection}_proj", pack)
                values = decode_blocks(kind, data[expert * size:(expert + 1) * size])
                test.expect(values == wanted, f"{what}: {name}, expert {expert}")


def check_affine(test):
    """Affine codes as Q4_1 and Q5_1."""
    twin = test.scratch / "qwen35.twin"
    for bits, kind in ((2, Q4_1), (3, Q4_1), (4, Q4_1), (5, Q5_1)):
        what = f"q{bits}"
        model = test.convert(twin, what, "--expert-format", what, "--group-size", 32, "--resident",
                             "q4")
        _, tensors = test.export(model, f"{what}.gguf")
        check_expert_values(test, what, model, tensors, [kind] * 3)
        # Residents: the heads' order is undone by the script.
        heads = gguf_model.Heads(gguf_model.CONFIG)
        for rest, name in (("in_proj_qkv", "attn_qkv"), ("in_proj_z", "attn_gate"),
                           ("out_proj", "ssm_out")):
            (cols, rows), found, data = tensors[f"blk.1.{name}.weight"]
            test.expect(found == Q4_1, f"{what}: {name} has type {found}")
            source = f"model.layers.1.linear_attn.{rest}"
            wanted = heads.change(rest + ".weight", [rows, cols],
                                  packed_values(test, model, source, ()), heads.tiled)
            data = data[:rows * cols // 32 * 20]
            test.expect(decode_blocks(found, data) == wanted, f"{what}: {name}")
        test.same_logits(what, model, f"{what}.gguf", exact=False)
    test.convert(twin, "mixed", "--expert-format", "q2", "--group-size", 32)
    mixed = test.scratch / "mixed"
    for name, bits in (("four", "4"), ("five", "5")):
        test.succeeds("quantize", mixed, "--from", twin, "--method", "rtn", "--name", name,
                      "--gate-up-bits", bits, "--down-bits", "3", "--group-size", "32", "--quiet")
        _, tensors = test.export(mixed, f"{name}.gguf", "--pack", name)
        kind = Q4_1 if bits == "4" else Q5_1
        check_expert_values(test, name, mixed, tensors, [kind, kind, Q4_1], ("--pack", name))


def check_tiers(test):
    """Experts of 2 and 4 bits in one layer share Q4_1; with 5 bits all are Q5_1; with 8 none is."""
    twin, mixed = test.scratch / "qwen35.twin", test.scratch / "mixed"
    hot = test.scratch / "hot.json"
    hot.write_text(json.dumps({"threshold": 0.5, "num_layers": 5, "num_experts": 4, "total_hot": 10,
                               "total_cold": 10,
                               "hot_experts": {str(layer): [1, 3] for layer in range(5)}}))
    for bits, kind in ((4, Q4_1), (5, Q5_1), (8, None)):
        name = f"tier{bits}"
        test.succeeds("tier", mixed, "--from", twin, "--method", "rtn", "--hot-experts", hot,
                      "--hot-bits", bits, "--cold-bits", 2, "--group-size", 32, "--name", name,
                      "--quiet")
        if kind is None:
            test.refuses("a tier of 8 bits", ("layer 0, gate_proj", "expert 1", "q8 g32"), "export",
                         "--gguf", mixed, "--pack", name, "-o", test.scratch / "out", "--quiet")
            continue
        _, tensors = test.export(mixed, f"{name}.gguf", "--pack", name)
        check_expert_values(test, name, mixed, tensors, [kind] * 3, ("--pack", name))


def check_mlx(test):
    """The repository's MLX checkpoint: 4-bit codes, routers of 8 bits, heads already grouped."""
    model = test.convert(test.checkpoint, "mlx")
    metadata, tensors = test.export(model, "mlx.gguf")
    config = json.loads((test.checkpoint / "config.json").read_text())
    config = config.get("text_config", config)
    heads = gguf_model.Heads(config)
    source = random.Random(1)
    for rest, (name, _) in gguf_model.RESIDENTS.items():
        if not rest.startswith(("linear_attn.in_proj", "mlp.", "linear_attn.out_proj")):
            continue
        ne, kind, data = tensors[f"blk.1.{name}"]
        cols, rows = ne[0], ne[1] if len(ne) > 1 else 1
        test.expect(kind == (F32 if rest in GATES else Q4_1), f"mlx: {name} has type {kind}")
        row_bytes = cols * 4 if kind == F32 else cols // 32 * 20
        wanted = packed_values(test, model, "model.layers.1." + rest.removesuffix(".weight"), ())
        if "linear_attn" in rest:
            wanted = heads.change(rest, [rows, cols], wanted, heads.tiled)
        for row in {0, rows - 1, *(source.randrange(rows) for _ in range(6))}:
            part = data[row * row_bytes:(row + 1) * row_bytes]
            found = list(struct.unpack(f"<{cols}f", part)) if kind == F32 else decode_blocks(kind,
                                                                                          part)
            test.expect(found == wanted[row * cols:(row + 1) * cols], f"mlx: {name}, row {row}")
    tokens = metadata["tokenizer.ggml.tokens"]
    spec = json.loads((test.checkpoint / "tokenizer.json").read_text())
    types = metadata["tokenizer.ggml.token_type"]
    for token in spec["added_tokens"]:
        test.expect(tokens[token["id"]] == token["content"], f"mlx: token {token}")
        test.expect(types[token["id"]] == (3 if token["special"] else 4), f"mlx: type of {token}")
    for text, number in spec["model"]["vocab"].items():
        if tokens[number] != text:
            test.expect(False, f"mlx: token {number} is {tokens[number]}, not {text}")
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    test.expect(metadata["tokenizer.ggml.merges"] == merges, "mlx: merges")
    test.expect(metadata["tokenizer.chat_template"] ==
                (test.checkpoint / "chat_template.jinja").read_text(), "mlx: chat template")
    test.same_logits("mlx", model, "mlx.gguf", exact=False)


def check_special_tokens(test):
    """Ids that end a text: eos, then those that llama.cpp does not know by name."""
    copy = Copy(test, test.scratch / "even.floats")
    (copy.path / "generation_config.json").write_text('{"eos_token_id": [256, 257, 259, 258]}')
    (copy.path / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": {"content": "<|im_start|>"}, "pad_token": None, "add_bos_token": False,
         "chat_template": "{{ messages }}"}))
    result = test.succeeds("export", "--gguf", copy.path, "-o", test.scratch / "special.gguf")
    test.expect("ids that end a text, 1" in result.stderr, f"no note: {result.stderr}")
    metadata, _ = gguf.read_head(test.scratch / "special.gguf")
    found = {k.removeprefix("tokenizer.").removeprefix("ggml."): v for k, v in metadata.items()
             if "token_id" in k or "add_bos" in k or "template" in k}
    test.expect(found == {"bos_token_id": 257, "eos_token_id": 256, "eot_token_id": 257,
                          "eom_token_id": 259, "add_bos_token": 0,
                          "chat_template": "{{ messages }}"}, f"special tokens {found}")
    for before, key, expected in (([], None, None), ([], True, 0), (["<|im_start|>"], None, 1),
                                  (["<|im_start|>"], False, 1), (["<|im_start|>"] * 2, True, 1)):
        check_begin_of_text(test, copy, before, key, expected)
    (copy.path / "tokenizer_config.json").write_text('{"eos_token": "no such"}')
    test.refuses("no such token", ("tokenizer_config.json", "eos_token", "no such"), "export",
                 "--gguf", copy.path, "-o", test.scratch / "out")


def check_begin_of_text(test, copy, before, key, expected):
    """add_bos_token is what the post-processor's template puts before texts, or the key of the config."""
    config = {"bos_token": "<|im_start|>"} | ({} if key is None else {"add_bos_token": key})
    (copy.path / "tokenizer_config.json").write_text(json.dumps(config))
    spec = json.loads((copy.path / "tokenizer.json").read_text())
    ids = [token["id"] for token in spec["added_tokens"] if token["content"] == "<|im_start|>"]
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token}} for token in before] + [{"Sequence": {"id": "A"}}],
        "special_tokens": {token: {"id": token, "ids": ids} for token in before}}
    (copy.path / "tokenizer.json").write_text(json.dumps(spec))
    out = test.scratch / "begin.gguf"
    out.unlink(missing_ok=True)
    test.succeeds("export", "--gguf", copy.path, "-o", out)
    found = gguf.read_head(out)[0].get("tokenizer.ggml.add_bos_token")
    test.expect(found == expected, f"add_bos_token with {before} and {key}: {found}, not {expected}")


def check_report(test):
    out = test.scratch / "report.gguf"
    result = test.succeeds("export", "--gguf", test.scratch / "q2", "-o", out, "--json", "--quiet")
    report = json.loads(result.stdout)
    test.expect(report["file_size"] == out.stat().st_size, f"file_size {report['file_size']}")
    test.expect(report["architecture"] == "qwen35moe", "architecture")
    blocks = {b["what"]: b["tensors"] for b in report["affine_blocks"]}
    test.expect(blocks.get("q2 g32 as Q4_1") == 15, f"blocks {blocks}")
    test.expect(sum(t["tensors"] for t in report["types"]) == report["num_tensors"], "types")
    out.unlink()


# ---- refused ----

class Copy:
    """A model directory to damage."""

    def __init__(self, test, source):
        self.path = test.scratch / "bad"
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(source, self.path)

    def edit(self, name, old, new):
        path = self.path / name
        text = path.read_text()
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, 1))

    def patch(self, name, offset, data):
        with open(self.path / name, "r+b") as file:
            file.seek(offset)
            file.write(data)


def place_of(model, component):
    """Where a component of the resident weights begins."""
    return json.loads((model / "model_weights.json").read_text())["tensors"][component]["offset"]


def check_refusals(test):
    floats, q2 = test.scratch / "qwen35.floats", test.scratch / "q2"
    out = test.scratch / "out"

    def refuses(what, needles, model, *flags):
        test.refuses(what, needles, "export", "--gguf", model, "-o", out, "--quiet", *flags)

    for flags in (("--split", "1"), ("--split-names", "loader"), ("--vocab-bytes", "bpe"),
                  ("--tokenizer-only",), ("--no-tokenizer",)):
        refuses(f"with {flags}", ("--gguf", flags[0]), floats, *flags)
    refuses("another pack", ("no pack called no", "packed_experts"), floats, "--pack", "no")
    test.refuses("an output that exists", ("ids.json", "exists"), "export", "--gguf", floats, "-o",
                 test.ids)
    test.refuses("a directory that does not", ("nowhere",), "export", "--gguf", floats, "-o",
                 test.scratch / "nowhere" / "x.gguf")
    test.refuses("no model", ("nothing",), "export", "--gguf", test.scratch / "nothing", "-o", out)

    bad = Copy(test, floats)
    (bad.path / "tokenizer.json").unlink()
    refuses("no tokenizer", ("tokenizer.json", "missing"), bad.path)
    bad = Copy(test, floats)
    bad.edit("tokenizer.json", "\\\\p{N}", "\\\\p{Nd}")
    refuses("another pre-tokenizer", ("tokenizer.json", "qwen35, qwen2"), bad.path)
    bad = Copy(test, floats)
    bad.edit("tokenizer.json", '"id":256', '"id":999')
    refuses("an id beyond", ("tokenizer.json", "999"), bad.path)
    bad = Copy(test, floats)
    bad.edit("config.json", '"linear_value_head_dim": 32', '"linear_value_head_dim": 16')
    refuses("other shapes", ("model_weights.json", "config.json"), bad.path)
    # A model whose heads would have to change places within blocks of 256.
    bad = Copy(test, test.scratch / "qwen35.model")
    bad.edit("model_weights.json", '"tiled"', '"grouped"')
    refuses("blocks across heads", ("linear_attn.out_proj", "blocks of 256", "reordered"), bad.path)
    bad = Copy(test, test.scratch / "next.model")
    bad.edit("model_weights.json", '"grouped"', '"tiled"')
    refuses("tiled Qwen3-Next", ("tiled V heads",), bad.path)
    for pack, needle in (("q6", "q6 g32"), ("q8", "q8 g32")):
        model = test.convert(test.scratch / "qwen35.twin", pack, "--expert-format", pack,
                             "--group-size", 32)
        refuses(pack, ("layout.json", "layer 0, gate_proj", needle, "5 bits"), model)
    model = test.convert(test.scratch / "qwen35.twin", "q8r", "--resident", "q8", "--group-size", 32)
    refuses("residents of 8 bits", ("model_weights.json", "q8 g32", "5 bits"), model)
    wide = dict(gguf_model.CONFIG, linear_key_head_dim=16)
    twin = test.write_twin("wide", gguf_model.Model(wide), floats)
    refuses("heads of two sizes", ("config.json", "linear_key_head_dim"), test.convert(twin, "wide.m"))
    check_inexact(test, refuses, q2)
    check_damaged(test, refuses, floats)
    return refuses


def check_inexact(test, refuses, q2):
    """Scales and biases that no float16 is; those of codes that are all zero do not matter."""
    for what, at, value in (("scale", "scales", 1e-7), ("bias", "biases", 1e-7),
                            ("scale", "scales", 1e6)):
        name = "model.layers.1.mlp.shared_expert.up_proj"
        bad = Copy(test, q2)
        bad.patch("model_weights.bin", place_of(q2, f"{name}.{at}") + 2 * 5,
                  gguf_model.bfloat([value]))
        refuses(f"a {what} of {value}", (name, what, "float16", "row 2, group 1"), bad.path)
    layout = json.loads((q2 / "packed_experts" / "layout.json").read_text())
    begin = next(c["offset"] for c in layout["components"] if c["name"] == "down_proj.scales")
    bad = Copy(test, q2)
    bad.patch("packed_experts/layer_02.bin", layout["expert_stride"] * 3 + begin,
              gguf_model.bfloat([1e-7]))
    refuses("an expert's scale", ("layer_02.bin", "model.layers.2.mlp.experts.3.down_proj", "float16",
                                  "row 0, group 0"), bad.path)


def check_damaged(test, refuses, floats):
    for name, needle in (("model_weights.bin", "checksum"),
                         ("packed_experts/layer_03.bin", "checksum")):
        bad = Copy(test, floats)
        size = (bad.path / name).stat().st_size
        byte = (bad.path / name).read_bytes()[size // 3]
        bad.patch(name, size // 3, bytes([byte ^ 1]))
        refuses(f"a flipped bit in {name}", (name, needle), bad.path)
        bad = Copy(test, floats)
        os.truncate(bad.path / name, size - 1)
        refuses(f"{name} cut short", (Path(name).name,), bad.path)
    bad = Copy(test, floats)
    (bad.path / "moepack.unfinished").touch()
    refuses("an unfinished model", ("not finished",), bad.path)


def check_faults(test):
    """Reads, writes, syncs and the rename that fail."""
    if test.shim is None:
        return
    model, out = test.scratch / "q2", test.scratch / "fault.gguf"
    counts = test.scratch / "counts"
    test.run("export", "--gguf", model, "-o", out, "-t", "1", "--quiet", fault=f"count:{counts}")
    calls = test.counted(counts)
    wanted = out.read_bytes()
    out.unlink()
    for error, operation in (("EIO", "read"), ("ENOSPC", "write"), ("EIO", "sync"),
                             ("EIO", "rename")):
        number = calls[operation]
        test.expect(number > 0, f"no {operation}")
        for n in sorted({1, 2, number // 3, number // 2, number - 1, number} - {0, number + 1}):
            before = sorted(p.name for p in test.scratch.iterdir())
            result = test.run("export", "--gguf", model, "-o", out, "-t", "1", "--quiet",
                              fault=f"{error}:{operation}:{n}")
            # The last sync is the directory's: the file is there by then.
            if operation == "sync" and n == number:
                out.unlink(missing_ok=True)
                continue
            test.is_error(f"{error} at {operation} {n} of {number}", result, ())
            after = sorted(p.name for p in test.scratch.iterdir())
            test.expect(before == after, f"{operation} {n}: left {set(after) ^ set(before)}")
            out.unlink(missing_ok=True)
    test.run("export", "--gguf", model, "-o", out, "-t", "1", "--quiet")
    test.expect(out.read_bytes() == wanted, "another run, other bytes")


# ---- the reference models ----

def check_reference_models(test, models):
    for name in ("demo-moe", "small-moe"):
        config = json.loads((models / name / "config.json").read_text())
        model = test.convert(models / name, name)
        _, tensors = test.export(model, f"{name}.gguf")
        test.same_tensors(name, tensors,
                          Expected(files.read_tensors(models / name), config).out, ("ssm_a",))
        test.same_logits(name, model, f"{name}.gguf", exact=False)
    source = models / "small-moe-Q4_K_M.gguf"
    model = test.convert(source, "q4km")
    metadata, tensors = test.export(model, "q4km.gguf")
    wanted_metadata, wanted = read_gguf(source)
    test.same_tensors("Q4_K_M", tensors, wanted)
    for key, value in wanted_metadata.items():
        if key.startswith(("qwen35moe.", "tokenizer.")):
            test.expect(metadata.get(key) == value, f"Q4_K_M: key {key}")
    test.expect(metadata["general.file_type"] == wanted_metadata["general.file_type"], "file_type")
    test.same_logits("Q4_K_M", model, "q4km.gguf", exact=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--shim", type=Path, help="without it nothing fails on purpose")
    args = parser.parse_args()
    models = os.environ.get("MOEPACK_TEST_MODELS")
    with tempfile.TemporaryDirectory(prefix="moepack-gguf-export-") as scratch:
        test = Test(args, Path(scratch))
        try:
            check_architectures(test)
            check_affine(test)
            check_tiers(test)
            check_mlx(test)
            check_special_tokens(test)
            check_report(test)
            check_refusals(test)
            check_faults(test)
            if models:
                check_reference_models(test, Path(models))
        except (OSError, KeyError, ValueError, struct.error):  # what failed before says why
            test.failures.append(traceback.format_exc())
    skipped = "" if models else "SKIPPED: the reference models (MOEPACK_TEST_MODELS); "
    return conclude(test.failures, f"{test.runs} runs, {test.checks} checks; {skipped}")


if __name__ == "__main__":
    raise SystemExit(main())

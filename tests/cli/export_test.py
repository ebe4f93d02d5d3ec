#!/usr/bin/env python3
"""moepack export against the checkpoints that the exported models came from.

Reads the engines' files and the checkpoints with the standard library alone and computes every
tensor anew; shares no code with the program. Two checkpoints: the MLX one of the repository, and a
BF16 one in transformers' conventions that is made here.
"""

import argparse
import array
import copy
import json
import math
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = None
CHECKPOINT = None
SHIM = None
EVERY = 1
if "--shim" in sys.argv:  # known before the tests are defined, which say what they need
    SHIM = Path(sys.argv[sys.argv.index("--shim") + 1])


def run(*args):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True,
                          errors="replace", timeout=300, check=False)


def must_run(*args):
    done = run(*args)
    if done.returncode != 0:
        raise AssertionError(f"{args}: exit {done.returncode}: {done.stderr}")
    return done


# ---- numbers ----

def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16_values(data):
    return [struct.unpack("<f", bytes((0, 0)) + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def bf16_bytes(values):
    """Nearest, ties to even."""
    out = bytearray()
    for value in values:
        bits, = struct.unpack("<I", struct.pack("<f", value))
        out += struct.pack("<H", ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) & 0xffff)
    return bytes(out)


def round_group(group, levels):
    """MLX's affine rule on one group, in float32: codes, scale, bias."""
    low, high = min(group), max(group)
    scale = max(f32(f32(high - low) / levels), f32(1e-7))
    edge = low
    if abs(low) <= abs(high):
        scale, edge = -scale, high
    bias = 0.0
    nearest = round(f32(edge / scale))
    if nearest != 0:
        scale, bias = f32(edge / nearest), edge
    codes = [min(levels, max(0, round(f32(f32(w - bias) / scale)))) for w in group]
    return codes, scale, bias


def round_matrix(values, bits):
    """(codes, scales, biases) as bytes; groups of 64."""
    stream, scales, biases = 0, [], []
    packed = bytearray()
    for at in range(0, len(values), 64):
        codes, scale, bias = round_group(values[at:at + 64], (1 << bits) - 1)
        stream = 0
        for i, code in enumerate(codes):
            stream |= code << (i * bits)
        packed += stream.to_bytes(64 * bits // 8, "little")
        scales.append(scale)
        biases.append(bias)
    return bytes(packed), bf16_bytes(scales), bf16_bytes(biases)


def decode(codes, scales, biases, bits, group=64):
    values = []
    per_group = group * bits // 8
    for g, (scale, bias) in enumerate(zip(bf16_values(scales), bf16_values(biases))):
        stream = int.from_bytes(codes[g * per_group:(g + 1) * per_group], "little")
        for i in range(group):
            code = stream >> (i * bits) & ((1 << bits) - 1)
            values.append(f32(f32(code * scale) + bias))
    return values


# ---- files ----

def read_checkpoint(directory):
    """{name: (dtype, shape, bytes)}"""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        data = path.read_bytes()
        size, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
    return tensors


def write_checkpoint(directory, tensors, config):
    directory.mkdir()
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def read_weights(directory):
    """The manifest and {name: (dtype, shape, bytes)}, with the rules of the files checked."""
    manifest = json.loads((directory / "model_weights.json").read_text())
    split = manifest.get("split", {"chunk_files": ["model_weights.bin"], "split_offsets": [0]})
    chunks = [(directory / file).read_bytes() for file in split["chunk_files"]]
    begins = split["split_offsets"]
    for i in range(1, len(begins)):
        assert begins[i] == begins[i - 1] + len(chunks[i - 1]), "chunks must follow each other"
        assert begins[i] % 64 == 0
    tensors, end = {}, 0
    names = list(manifest["tensors"])
    assert names == sorted(names)
    assert manifest["num_tensors"] == len(names)
    for name in names:
        entry = manifest["tensors"][name]
        at = entry["offset"]
        assert at % 64 == 0 and end <= at < end + 64, f"{name}: at {at}, {end} expected"
        chunk = max(i for i, begin in enumerate(begins) if begin <= at)
        data = chunks[chunk][at - begins[chunk]:at - begins[chunk] + entry["size"]]
        assert len(data) == entry["size"], f"{name} crosses a file"
        end = at + entry["size"]
        tensors[name] = (entry["dtype"], entry["shape"], data)
    assert end == begins[-1] + len(chunks[-1])
    joined = b"".join(chunks)
    covered = bytearray(joined)
    for name in names:
        entry = manifest["tensors"][name]
        covered[entry["offset"]:entry["offset"] + entry["size"]] = bytes(entry["size"])
    assert not any(covered), "padding is not zero"
    return manifest, tensors, joined


# ---- the BF16 checkpoint: w of 1 + w, conv1d [C, 1, 4], A_log BF16, dt_bias F32 ----

HIDDEN, WIDTH, EXPERTS, VOCAB = 128, 64, 3, 300
CONFIG = {
    "model_type": "qwen3_5_moe_text", "architectures": ["Qwen3_5MoeForCausalLM"],
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"], "num_experts": EXPERTS,
    "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH,
    "shared_expert_intermediate_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.25},
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
    "max_position_embeddings": 512, "eos_token_id": 2}


def plain_tensors(tied=False):
    draw = random.Random(7)
    tensors = {}

    def add(name, shape, center=0.0, spread=0.1, dtype="BF16"):
        count = 1
        for dimension in shape:
            count *= dimension
        values = [f32(center + spread * draw.uniform(-1, 1)) for _ in range(count)]
        data = bf16_bytes(values) if dtype == "BF16" else array.array("f", values).tobytes()
        tensors[name] = (dtype, list(shape), data)

    add("model.embed_tokens.weight", (VOCAB, HIDDEN))
    add("model.norm.weight", (HIDDEN,), 0, 0.5)
    if not tied:
        add("lm_head.weight", (VOCAB, HIDDEN))
    for layer in range(2):
        at = f"model.layers.{layer}."
        add(at + "input_layernorm.weight", (HIDDEN,), 0, 0.5)
        add(at + "post_attention_layernorm.weight", (HIDDEN,), 0, 0.5)
        if layer == 0:
            linear = at + "linear_attn."
            for name, rows in (("in_proj_qkv", 256), ("in_proj_z", 128), ("in_proj_b", 4),
                               ("in_proj_a", 4)):
                add(linear + name + ".weight", (rows, HIDDEN))
            add(linear + "conv1d.weight", (256, 1, 4), 0, 0.5)
            add(linear + "A_log", (4,), 1, 1)
            add(linear + "dt_bias", (4,), 0, 1, "F32")
            add(linear + "norm.weight", (32,), 1, 0.2)
            add(linear + "out_proj.weight", (HIDDEN, 128))
        else:
            for name, rows in (("q_proj", 256), ("k_proj", 64), ("v_proj", 64), ("o_proj", HIDDEN)):
                add(at + f"self_attn.{name}.weight", (rows, 128))
            add(at + "self_attn.q_norm.weight", (64,), 0, 0.5)
            add(at + "self_attn.k_norm.weight", (64,), 0, 0.5)
        add(at + "mlp.gate.weight", (EXPERTS, HIDDEN))
        add(at + "mlp.shared_expert_gate.weight", (1, HIDDEN))
        modules = [f"experts.{e}" for e in range(EXPERTS)] + ["shared_expert"]
        for module in modules:
            for name, shape in (("gate_proj", (WIDTH, HIDDEN)), ("up_proj", (WIDTH, HIDDEN)),
                                ("down_proj", (HIDDEN, WIDTH))):
                add(at + f"mlp.{module}.{name}.weight", shape)
    return tensors


def expected_of_plain(tensors):
    """What the engines must find: matrices rounded, norms with the 1, dtypes as theirs."""
    expected = {}
    if "lm_head.weight" not in tensors:
        tensors = dict(tensors, **{"lm_head.weight": tensors["model.embed_tokens.weight"]})
    for name, (dtype, shape, data) in tensors.items():
        if ".experts." in name:
            continue
        if name.endswith("norm.weight"):
            if "linear_attn.norm" not in name:
                data = bf16_bytes([f32(1 + w) for w in bf16_values(data)])
            expected[name] = ("BF16", shape, data)
        elif name.endswith("conv1d.weight"):
            expected[name] = ("BF16", [shape[0], shape[2], 1], data)
        elif name.endswith("A_log"):
            expected[name] = ("F32", shape, array.array("f", bf16_values(data)).tobytes())
        elif name.endswith("dt_bias"):
            assert dtype == "F32"
            expected[name] = ("BF16", shape, bf16_bytes(array.array("f", data)))
        else:
            module = name[:-len(".weight")]
            codes, scales, biases = round_matrix(bf16_values(data), 4)
            expected[module + ".weight"] = ("U32", [shape[0], shape[1] // 8], codes)
            expected[module + ".scales"] = ("BF16", [shape[0], shape[1] // 64], scales)
            expected[module + ".biases"] = ("BF16", [shape[0], shape[1] // 64], biases)
    return expected


def mlx_tensors(tensors):
    """The same model as mlx-lm would write it with every matrix in 4 bits."""
    result = {"language_model." + name: tensor
              for name, tensor in expected_of_plain(tensors).items()}
    for layer in range(2):
        for projection in ("gate_proj", "up_proj", "down_proj"):
            parts, shape = [b"", b"", b""], None
            for e in range(EXPERTS):
                _, shape, data = tensors[f"model.layers.{layer}.mlp.experts.{e}.{projection}.weight"]
                for i, part in enumerate(round_matrix(bf16_values(data), 4)):
                    parts[i] += part
            module = f"language_model.model.layers.{layer}.mlp.switch_mlp.{projection}"
            groups = [EXPERTS, shape[0], shape[1] // 64]
            result[module + ".weight"] = ("U32", [EXPERTS, shape[0], shape[1] // 8], parts[0])
            result[module + ".scales"] = ("BF16", groups, parts[1])
            result[module + ".biases"] = ("BF16", groups, parts[2])
    return result


def expected_of_mlx(tensors):
    """Everything as it is, but 8-bit routers in 4 bits and A_log in F32."""
    expected = {}
    for name, (dtype, shape, data) in tensors.items():
        if ".switch_mlp." in name:
            continue
        name = name.removeprefix("language_model.")
        module = name.rsplit(".", 1)[0]
        if module.endswith((".mlp.gate", ".shared_expert_gate")):
            if not name.endswith(".weight"):
                continue
            parts = [tensors[f"language_model.{module}.{part}"]
                     for part in ("weight", "scales", "biases")]
            values = decode(parts[0][2], parts[1][2], parts[2][2], 8)
            rounded = round_matrix(values, 4)
            expected[module + ".weight"] = ("U32", [shape[0], shape[1] // 2], rounded[0])
            expected[module + ".scales"] = (parts[1][0], parts[1][1], rounded[1])
            expected[module + ".biases"] = (parts[2][0], parts[2][1], rounded[2])
        elif name.endswith("A_log") and dtype == "BF16":
            expected[name] = ("F32", shape, array.array("f", bf16_values(data)).tobytes())
        else:
            expected[name] = (dtype, shape, data)
    return expected


# ---- tokenizer files ----

def read_tokenizer_bin(path):
    data = path.read_bytes()
    magic, version, *counts = struct.unpack_from("<4sIIII", data)
    assert magic == b"BPET" and version == 1
    at = 20

    def text():
        nonlocal at
        size, = struct.unpack_from("<H", data, at)
        at += 2 + size
        return data[at - size:at].decode()

    def token():
        nonlocal at
        number, = struct.unpack_from("<I", data, at)
        at += 4
        return number, text()

    vocab = [token() for _ in range(counts[0])]
    merges = [(text(), text()) for _ in range(counts[1])]
    added = [token() for _ in range(counts[2])]
    assert at == len(data)
    return vocab, merges, added


def read_vocab_bin(path):
    data = path.read_bytes()
    count, highest = struct.unpack_from("<II", data)
    assert highest == count - 1
    at, entries = 8, []
    for _ in range(count):
        size, = struct.unpack_from("<H", data, at)
        entries.append(data[at + 2:at + 2 + size])
        at += 2 + size
    assert at == len(data)
    return entries


def byte_alphabet():
    """{character: byte} of byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {**{chr(byte): byte for byte in kept},
            **{chr(256 + i): byte for i, byte in enumerate(rest)}}


def expected_vocab(tokenizer, raw):
    alphabet = byte_alphabet()
    texts = {}
    for text, number in tokenizer["model"]["vocab"].items():
        known = raw and all(c in alphabet for c in text)
        texts[number] = bytes(alphabet[c] for c in text) if known else text.encode()
    for token in tokenizer["added_tokens"]:
        texts[token["id"]] = token["content"].encode()
    return [texts.get(number, b"") for number in range(max(texts) + 1)]


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        cls.mlx = cls.root / "mlx-model"
        must_run("convert", CHECKPOINT, "-o", cls.mlx, "--quiet")
        cls.plain_source = plain_tensors()
        write_checkpoint(cls.root / "plain", cls.plain_source, CONFIG)
        cls.plain = cls.root / "plain-model"
        must_run("convert", cls.root / "plain", "-o", cls.plain, "--expert-format", "q4", "--quiet")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def fresh(self, name):
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def export(self, model, *flags):
        """Exports to a fresh directory; returns it and the report."""
        out = self.fresh("export")
        done = must_run("export", model, "-o", out, "--quiet", "--json", *flags)
        self.assertEqual(done.stderr, "")
        return out, json.loads(done.stdout)

    def assert_tensors(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            self.assertEqual(found[name][:2], tuple(tensor[:2]), name)
            self.assertTrue(found[name][2] == tensor[2], f"{name}: bytes differ")

    def assert_refused(self, names, *args, out=None):
        out = out or self.fresh("export")
        existed = out.exists()
        done = run("export", *args, "-o", out, "--quiet")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for name in names:
            self.assertIn(name, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(out.exists(), existed)

    # ---- weights ----

    def test_mlx_tensors_keep_their_bytes(self):
        out, report = self.export(self.mlx)
        manifest, tensors, _ = read_weights(out)
        expected = expected_of_mlx(read_checkpoint(CHECKPOINT))
        self.assert_tensors(tensors, expected)
        routers = {t["name"] for t in report["rounded_tensors"]}
        self.assertEqual(routers, {f"model.layers.{i}.mlp.{m}" for i in range(4)
                                   for m in ("gate", "shared_expert_gate")})
        source = json.loads((CHECKPOINT / "config.json").read_text())["text_config"]
        for key, value in manifest["config"].items():
            if key not in ("partial_rotary_factor", "rope_theta", "full_attention_interval"):
                self.assertEqual(value, source[key], key)
        self.assertEqual(manifest["config"]["rope_theta"], source["rope_parameters"]["rope_theta"])
        self.assertEqual(manifest["config"]["full_attention_interval"], 4)
        self.assertEqual(len(manifest["config"]), 20)

    def test_plain_tensors_are_rounded_by_mlx_rule(self):
        out, report = self.export(self.plain, "--no-tokenizer")
        _, tensors, _ = read_weights(out)
        self.assert_tensors(tensors, expected_of_plain(self.plain_source))
        self.assertEqual(report["folded_norms"], 2 * 2 + 2 + 1)
        self.assertIn({"name": "model.layers.0.linear_attn.dt_bias", "from": "f32", "to": "bf16"},
                      report["rounded_tensors"])
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config.pop("quantization"),
                         {"bits": 4, "group_size": 64, "mode": "affine"})
        self.assertEqual(config, CONFIG)

    def test_tied_head_is_written_out(self):
        tensors = plain_tensors(tied=True)
        source = write_checkpoint(self.fresh("tied"), tensors, dict(CONFIG,
                                                                    tie_word_embeddings=True))
        model = self.fresh("tied-model")
        must_run("convert", source, "-o", model, "--expert-format", "q4", "--quiet")
        out, _ = self.export(model, "--no-tokenizer")
        self.assert_tensors(read_weights(out)[1], expected_of_plain(tensors))

    def test_conventions_of_other_sources(self):
        """A model that holds -exp(A_log) is written with A_log; tiled V heads are refused."""
        tensors = dict(self.plain_source)
        name = "model.layers.0.linear_attn.A_log"
        held = bf16_bytes([-math.exp(w) for w in bf16_values(tensors[name][2])])
        tensors[name] = ("BF16", [4], held)
        source = write_checkpoint(self.fresh("other-conventions"), tensors, CONFIG)
        model = self.fresh("other-conventions-model")
        must_run("convert", source, "-o", model, "--expert-format", "q4", "--quiet")
        path = model / "model_weights.json"
        text = path.read_text()
        path.write_text(text.replace('"a_log": "log"', '"a_log": "neg_exp"'))
        out, _ = self.export(model, "--no-tokenizer")
        dtype, _, data = read_weights(out)[1][name]
        self.assertEqual(dtype, "F32")
        for found, value in zip(array.array("f", data), bf16_values(held)):
            self.assertAlmostEqual(found, math.log(-value), delta=1e-6)
        path.write_text(text.replace('"v_heads": "grouped"', '"v_heads": "tiled"'))
        self.assert_refused(["model_weights.json", "V heads are tiled"], model, "--no-tokenizer")

    def test_chunks_join_to_the_unsplit_file(self):
        out, _ = self.export(self.mlx)
        _, tensors, whole = read_weights(out)
        # 0.000600001: no multiple of the alignment.
        for size in ("0.001", "0.000600001", "0.0021"):
            with self.subTest(split=size):
                out, report = self.export(self.mlx, "--split", size)
                manifest, parts, joined = read_weights(out)
                self.assertTrue(joined == whole)
                self.assert_tensors(parts, tensors)
                files = manifest["split"]["chunk_files"]
                self.assertEqual(manifest["split"]["num_chunks"], len(files))
                self.assertEqual(files, ["model_weights.bin"] +
                                 [f"model_weights_{i}.bin" for i in range(1, len(files))])
                self.assertEqual(sorted(path.name for path in out.glob("model_weights*.bin")),
                                 sorted(files))
                sizes = [(out / file).stat().st_size for file in files]
                self.assertTrue(max(sizes) <= float(size) * 1e9, sizes)
                self.assertEqual(report["weight_files"],
                                 [{"file": f, "size": s} for f, s in zip(files, sizes)])

    def test_loader_names(self):
        out, _ = self.export(self.mlx, "--split", "0.002", "--split-names", "loader")
        manifest, _, _ = read_weights(out)
        self.assertEqual(manifest["split"]["chunk_files"],
                         ["model_weights_0.bin", "model_weights_1.bin"])
        out, _ = self.export(self.mlx, "--split", "1", "--split-names", "loader")
        self.assertTrue((out / "model_weights.bin").exists())
        self.assertNotIn("split", read_weights(out)[0])
        self.assert_refused(["3 files", "--split"], self.mlx, "--split", "0.0012",
                            "--split-names", "loader")

    def test_threads_do_not_change_the_bytes(self):
        one, _ = self.export(self.plain, "--no-tokenizer", "-t", "1")
        files = {path.relative_to(one): path.read_bytes() for path in one.rglob("*")
                 if path.is_file()}
        three, _ = self.export(self.plain, "--no-tokenizer", "-t", "3")
        self.assertEqual(files, {path.relative_to(three): path.read_bytes()
                                 for path in three.rglob("*") if path.is_file()})

    # ---- the exported directory as a model ----

    def logits(self, model):
        ids = self.root / "ids.json"
        ids.write_text(json.dumps([i * 37 % VOCAB for i in range(24)]))
        out = self.root / "logits.f32"
        must_run("logits", model, "--token-ids", ids, "-o", out, "--backend", "reference")
        return out.read_bytes()

    def test_an_export_computes_what_its_source_does(self):
        """A checkpoint with nothing to round, written by this script: the same logits from the
        conversion, from its export, from its split export, and from the export of the BF16 model,
        whose rounding this script has done to the checkpoint."""
        config = dict(CONFIG, quantization={"group_size": 64, "bits": 4})
        source = write_checkpoint(self.fresh("four-bit"), mlx_tensors(self.plain_source), config)
        model = self.fresh("four-bit-model")
        must_run("convert", source, "-o", model, "--quiet")
        expected = self.logits(model)
        self.assertEqual(len(expected), 24 * VOCAB * 4)
        out, report = self.export(model, "--no-tokenizer")
        self.assertEqual(report["rounded_tensors"], [])
        weights = (out / "model_weights.bin").read_bytes()
        self.assertTrue(self.logits(out) == expected)
        again = self.fresh("again")
        must_run("export", out, "-o", again, "--no-tokenizer", "--quiet")
        self.assertTrue((again / "model_weights.bin").read_bytes() == weights)
        out, _ = self.export(model, "--no-tokenizer", "--split", "0.00005")
        self.assertGreater(len(list(out.glob("model_weights*.bin"))), 2)
        self.assertTrue(self.logits(out) == expected)
        out, _ = self.export(self.plain, "--no-tokenizer")
        self.assertTrue(self.logits(out) == expected)
        self.assertFalse(self.logits(self.plain) == expected)

    # ---- experts ----

    def records(self, model):
        layout = json.loads((model / "packed_experts" / "layout.json").read_text())
        size, stride = layout["expert_size"], layout["expert_stride"]
        for layer in layout["layers"]:
            data = (model / "packed_experts" / layer["file"]).read_bytes()
            yield layer["file"], b"".join(data[e * stride:e * stride + size]
                                          for e in range(layout["num_experts"]))

    def test_experts_without_padding_are_linked(self):
        out, report = self.export(self.mlx)
        self.assertEqual((report["linked_layers"], report["written_layers"]), (4, 0))
        for name, data in self.records(self.mlx):
            path = out / "packed_experts" / name
            self.assertTrue(path.read_bytes() == data)
            self.assertTrue(path.samefile(self.mlx / "packed_experts" / name))

    def test_padded_experts_are_rewritten(self):
        for bits, folder in ((4, "packed_experts"), (2, "packed_experts_2bit")):
            with self.subTest(bits=bits):
                model = self.fresh("padded")
                must_run("convert", self.root / "plain", "-o", model, "--quiet",
                         "--expert-format", f"q{bits}", "--page-size", "8192")
                out, report = self.export(model, "--no-tokenizer")
                self.assertEqual((report["linked_layers"], report["written_layers"]), (0, 2))
                self.assertEqual(report["expert_bits"], bits)
                names = ["layer_00.bin", "layer_01.bin", "layout.json"]
                self.assertEqual(sorted(path.name for path in (out / folder).iterdir()), names)
                for name, data in self.records(model):
                    self.assertTrue((out / folder / name).read_bytes() == data)
                # The record itself: gate, up, down of the last expert, from the checkpoint.
                layout = json.loads((out / folder / "layout.json").read_text())
                self.assertEqual(list(layout),
                                 ["expert_size", "num_layers", "num_experts", "components"])
                self.assertEqual((layout["num_layers"], layout["num_experts"]), (2, EXPERTS))
                data = (out / folder / "layer_01.bin").read_bytes()
                size = layout["expert_size"]
                self.assertEqual(len(data), EXPERTS * size)
                end = 0
                for component in layout["components"]:
                    projection, part = component["name"].split(".")
                    source = self.plain_source[f"model.layers.1.mlp.experts.2.{projection}.weight"]
                    rounded = dict(zip(("weight", "scales", "biases"),
                                       round_matrix(bf16_values(source[2]), bits)))
                    self.assertEqual(component["offset"], end)
                    at = 2 * size + component["offset"]
                    self.assertTrue(data[at:at + component["size"]] == rounded[part],
                                    component["name"])
                    self.assertEqual(component["dtype"], "U32" if part == "weight" else "BF16")
                    columns = source[1][1] * bits // 32 if part == "weight" else source[1][1] // 64
                    self.assertEqual(component["shape"], [source[1][0], columns])
                    end += component["size"]
                self.assertEqual(end, size)

    # ---- tokenizer ----

    def test_tokenizer_files(self):
        text = (CHECKPOINT / "tokenizer.json").read_text()
        tokenizer = json.loads(text)
        pairs = [tuple(m) if isinstance(m, list) else tuple(m.split(" "))
                 for m in tokenizer["model"]["merges"]]
        old = copy.deepcopy(tokenizer)
        old["model"]["merges"] = [" ".join(pair) for pair in pairs]
        new = copy.deepcopy(tokenizer)
        new["model"]["merges"] = [list(pair) for pair in pairs]
        new["added_tokens"].append(dict(new["added_tokens"][-1], id=5000, content="<|spät|>"))
        for name, document in (("old", old), ("new", new)):
            for form in ("raw", "bpe"):
                with self.subTest(merges=name, form=form):
                    source = self.fresh("tokenizer")
                    source.mkdir()
                    (source / "tokenizer.json").write_text(json.dumps(document))
                    out, report = self.export(source, "--tokenizer-only", "--vocab-bytes", form)
                    self.assertEqual(sorted(path.name for path in out.iterdir()),
                                     ["tokenizer.bin", "vocab.bin"])
                    vocab, merges, added = read_tokenizer_bin(out / "tokenizer.bin")
                    by_id = sorted((i, t) for t, i in document["model"]["vocab"].items())
                    self.assertEqual(vocab, by_id)
                    self.assertEqual(merges, pairs)
                    self.assertEqual(added, [(t["id"], t["content"])
                                             for t in document["added_tokens"]])
                    entries = read_vocab_bin(out / "vocab.bin")
                    self.assertEqual(entries, expected_vocab(document, form == "raw"))
                    self.assertEqual(report["vocab_entries"], len(entries))
                    self.assertEqual(report["vocab_gaps"], entries.count(b""))
                    self.assertEqual(name == "new", len(entries) == 5001)

    def test_a_whole_export_has_them_too(self):
        out, report = self.export(self.mlx)
        tokenizer = json.loads((CHECKPOINT / "tokenizer.json").read_text())
        self.assertEqual(read_vocab_bin(out / "vocab.bin"), expected_vocab(tokenizer, True))
        for name in report["copied_files"]:
            self.assertEqual((out / name).read_bytes(), (CHECKPOINT / name).read_bytes())
        self.assertIn("tokenizer.json", report["copied_files"])

    # ---- refusals ----

    def test_refusals(self):
        plain = self.root / "plain"
        self.assert_refused(["tokenizer.json", "--no-tokenizer"], self.plain)
        for flags, names in ((["--expert-format", "q8"], ["gate_proj", "q8 g64"]),
                             (["--expert-format", "q4", "--group-size", "32"], ["q4 g32"]),
                             (["--expert-format", "source"], ["bf16"])):
            model = self.fresh("other")
            must_run("convert", plain, "-o", model, "--quiet", *flags)
            self.assert_refused([*names, "layout.json"], model, "--no-tokenizer")
        self.assert_refused(["lm_head.weight", "524288 bytes", "--split"], self.mlx, "--split",
                            "0.0005")
        self.assert_refused(["has no pack called 2bit"], self.mlx, "--pack", "2bit")
        self.assert_refused(["--no-tokenizer"], self.mlx, "--no-tokenizer", "--tokenizer-only")
        for flags in (("--pack", "x"), ("--split", "3"), ("--split-names", "loader")):
            self.assert_refused([flags[0], "beside --tokenizer-only"], self.mlx, "--tokenizer-only",
                                *flags)
        self.assert_refused(["--split-names", "without --split"], self.mlx, "--split-names", "loader")
        full = self.fresh("full")
        full.mkdir()
        (full / "mine.txt").write_text("kept")
        self.assert_refused(["full", "not empty"], self.mlx, out=full)
        self.assertEqual([path.name for path in full.iterdir()], ["mine.txt"])

    def test_failed_write_leaves_nothing(self):
        """As on a full disk: files may not grow beyond a size."""
        for limit, name in ((400_000, "model_weights.bin"), (10_000, "tokenizer.bin")):
            out = self.fresh("export")

            def set_limit(size=limit):
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            # Without restore_signals SIGXFSZ stays ignored, so that writing fails instead.
            done = subprocess.run([PROGRAM, "export", self.mlx, "-o", out, "--quiet"],
                                  capture_output=True, text=True, restore_signals=False,
                                  preexec_fn=set_limit, timeout=300, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(str(out / name), done.stderr)
            self.assertFalse(out.exists())

    # ---- interruptions ----

    def killed(self, out, n, *args):
        """An export that is killed after its nth operation; None: it has fewer."""
        env = dict(os.environ, LD_PRELOAD=str(SHIM), MOEPACK_FAULT=f"kill-after:any:{n}")
        done = subprocess.run([PROGRAM, "export", *map(str, args), "-o", out, "--quiet", "-t", "1"],
                              capture_output=True, text=True, env=env, timeout=300, check=False)
        self.assertIn(done.returncode, (0, -9), done.stderr)
        return None if done.returncode == 0 else done

    def files_of(self, out):
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*")
                if path.is_file()}

    @unittest.skipIf(SHIM is None, "needs the library that kills (--shim)")
    def test_the_same_command_starts_again(self):
        for args in ((self.mlx, "--split", "0.002"), (self.plain, "--no-tokenizer")):
            whole, _ = self.export(*args)
            expected = self.files_of(whole)
            n = 1
            while True:
                out = self.fresh("killed")
                if self.killed(out, n, *args) is None:
                    break
                if (out / "moepack.unfinished").exists() or not any(out.iterdir()):
                    must_run("export", *args, "-o", out, "--quiet")
                self.assertEqual(self.files_of(out), expected, f"killed after {n}")
                n += EVERY
            self.assertGreater(n, 10)

    @unittest.skipIf(SHIM is None, "needs the library that kills (--shim)")
    def test_only_an_interrupted_export_is_taken(self):
        out = self.fresh("killed")
        self.assertIsNotNone(self.killed(out, 4, self.mlx))
        (out / "mine.txt").write_text("kept")
        before = self.files_of(out)
        self.assert_refused(["interrupted export", "mine.txt"], self.mlx, out=out)
        self.assertEqual(self.files_of(out), before)
        (out / "mine.txt").unlink()
        must_run("export", self.mlx, "-o", out, "--quiet")
        conversion = self.fresh("conversion")
        must_run("convert", CHECKPOINT, "-o", conversion, "--quiet", "--layers", "0")
        before = self.files_of(conversion)
        self.assert_refused(["not finished", "the same moepack convert"], self.mlx, out=conversion)
        self.assertEqual(self.files_of(conversion), before)

    @unittest.skipIf(SHIM is None, "needs the library that kills (--shim)")
    def test_other_commands_name_the_export(self):
        """Nothing of an interrupted export is removed, and nobody takes it for something else."""
        out = self.fresh("killed")
        self.assertIsNotNone(self.killed(out, 40, self.mlx))
        before = self.files_of(out)
        self.assertGreater(len(before), 1)
        ids = self.fresh("ids.json")
        ids.write_text(json.dumps(list(range(64))))
        for command in (("convert", CHECKPOINT, "-o", out), ("run", out, "-p", "a"),
                        ("verify", out), ("export", out, "-o", self.fresh("again")),
                        ("calibrate", self.mlx, "--token-ids", ids, "-o", out)):
            done = run(*command)
            self.assertEqual(done.returncode, 2, (command, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for part in (str(out), "not finished", "run the same moepack export again"):
                self.assertIn(part, done.stderr, command)
            self.assertEqual(self.files_of(out), before, command)
        self.assertIn("moepack export has not come to its end", run("inspect", out).stdout)
        must_run("export", self.mlx, "-o", out, "--quiet")

    def test_links_that_lead_nowhere(self):
        link = self.fresh("link")
        link.symlink_to("gone")
        self.assert_refused(["link", "gone"], self.mlx, out=link)
        self.assert_refused(["link", "gone"], self.mlx, out=link / "below")
        self.assertTrue(link.is_symlink())

    def test_damage_is_found(self):
        broken = self.fresh("broken")
        shutil.copytree(self.plain, broken)
        shutil.copy(CHECKPOINT / "tokenizer.json", broken)
        path = broken / "model_weights.bin"
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
        self.assert_refused(["model_weights.bin", "checksum"], broken)
        shutil.copy(self.plain / "model_weights.bin", path)
        path = broken / "packed_experts" / "layer_01.bin"
        data = bytearray(path.read_bytes())
        data[20000] ^= 1
        path.write_bytes(data)
        self.assert_refused(["layer_01.bin", "expert 1", "checksum"], broken)
        tokenizer = json.loads((broken / "tokenizer.json").read_text())
        tokenizer["added_tokens"][0]["id"] = 2 ** 30
        (broken / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.assert_refused(["tokenizer.json", "far beyond"], broken)


def main():
    global PROGRAM, CHECKPOINT, EVERY
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--shim", type=Path, help="without it nothing is interrupted")
    parser.add_argument("--every", type=int, default=1, help="only every Nth interruption")
    flags = parser.parse_args()
    PROGRAM, CHECKPOINT, EVERY = flags.program, flags.checkpoint, flags.every
    unittest.main(argv=["export_test"], verbosity=2)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checkpoints of bench/make_checkpoint: what they hold, and that moepack converts and runs them.

Reads the files with the standard library alone.
"""

import argparse
import array
import hashlib
import json
import math
import pathlib
import struct
import subprocess
import tempfile
import unittest

PROGRAM = None
GENERATOR = None

SHAPE = ["--layers", "4", "--experts", "8", "--experts-per-token", "2", "--hidden", "256",
         "--expert-width", "128", "--shared-width", "64", "--heads", "4", "--head-dim", "64",
         "--linear-key-heads", "2", "--linear-value-heads", "4", "--linear-key-dim", "32",
         "--linear-value-dim", "32", "--vocab", "512"]
FORMS = ("bf16", "bf16-fused", "mlx-4bit")


def generate(directory, *flags):
    subprocess.run([GENERATOR, "-o", str(directory), *SHAPE, *flags], check=True,
                   capture_output=True)
    return directory


def digest(directory):
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in directory.iterdir()}
    return json.dumps(sums, sort_keys=True)


def read_shard(path):
    """Header size, offset of the data, and {name: (dtype, shape, bytes)}."""
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
    return size, 8 + size, tensors


def read_all(directory):
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors.update(read_shard(path)[2])
    return tensors


def bf16(data):
    words = array.array("H", data)
    return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words]


def deviation(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))


class MakeCheckpoint(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)

    def test_every_form_converts_and_runs(self):
        ids = self.root / "ids.json"
        ids.write_text("[1, 2, 300, 256, 40, 9]")
        for form in FORMS:
            with self.subTest(form=form):
                source = generate(self.root / form, "--form", form, "--shard-gb", "0.004",
                                  "--skipped-tensors", "--odd-offsets")
                model = self.root / (form + ".model")
                subprocess.run([PROGRAM, "convert", source, "-o", model, "--quiet"], check=True)
                out = self.root / "logits.f32"
                subprocess.run([PROGRAM, "logits", model, "--token-ids", ids, "-o", out],
                               check=True, capture_output=True)
                logits = array.array("f", out.read_bytes())
                self.assertEqual(len(logits), 6 * 512)
                self.assertTrue(all(math.isfinite(v) for v in logits))
                self.assertGreater(deviation(logits)[1], 0.1)

    def test_seed_alone_decides_the_bytes(self):
        one = digest(generate(self.root / "a", "-t", "1"))
        self.assertEqual(one, digest(generate(self.root / "b", "-t", "3")))
        self.assertNotEqual(one, digest(generate(self.root / "c", "--seed", "2")))

    def test_weights_have_the_scale_of_trained_ones(self):
        tensors = read_all(generate(self.root / "m", "--form", "bf16"))
        values = bf16(tensors["model.layers.2.mlp.experts.5.gate_proj.weight"][2])
        mean, std = deviation(values)
        self.assertLess(abs(mean), 0.002)
        self.assertAlmostEqual(std, 0.905 / 16, delta=0.006)
        self.assertGreater(max(values), 4 * std)  # tails
        other = bf16(tensors["model.layers.2.mlp.experts.6.gate_proj.weight"][2])
        self.assertNotEqual(values, other)
        norm = bf16(tensors["model.layers.0.input_layernorm.weight"][2])
        self.assertLess(abs(deviation(norm)[0]), 0.1)

    def test_affine_codes_decode_to_the_same_scale(self):
        tensors = read_all(generate(self.root / "m", "--form", "mlx-4bit"))
        module = "language_model.model.layers.1.mlp.switch_mlp.up_proj"
        dtype, shape, codes = tensors[module + ".weight"]
        self.assertEqual((dtype, shape), ("U32", [8, 128, 32]))
        scales = bf16(tensors[module + ".scales"][2])
        biases = bf16(tensors[module + ".biases"][2])
        self.assertEqual(len(scales), 8 * 128 * 4)
        values = [(code >> shift & 15) * scales[at // 32] + biases[at // 32]
                  for at, code in enumerate(codes) for shift in (0, 4)]
        mean, std = deviation(values)
        self.assertLess(abs(mean), 0.002)
        self.assertAlmostEqual(std, 0.905 / 16, delta=0.006)
        norm = bf16(tensors["language_model.model.norm.weight"][2])
        self.assertAlmostEqual(deviation(norm)[0], 1, delta=0.1)
        self.assertEqual(tensors["language_model.model.layers.0.linear_attn.conv1d.weight"][1],
                         [256, 4, 1])
        router = tensors["language_model.model.layers.0.mlp.gate.weight"]
        self.assertEqual(router[1], [8, 64])  # 8 bits

    def test_headers_as_asked(self):
        padded = generate(self.root / "p", "--header-mb", "0.5")
        size, start, tensors = read_shard(padded / "model.safetensors")
        self.assertEqual((size, start % 8), (500000, 0))
        full = generate(self.root / "f", "--header-mb", "0.5", "--header-tensors")
        self.assertEqual(read_shard(full / "model.safetensors")[0], 500000)
        self.assertGreater(len(read_all(full)), len(tensors) + 3000)
        odd = generate(self.root / "o", "--odd-offsets", "--shard-gb", "0.004")
        shards = sorted(odd.glob("model-*.safetensors"))
        self.assertGreater(len(shards), 1)
        self.assertTrue(all(read_shard(path)[1] % 2 == 1 for path in shards))
        index = json.loads((odd / "model.safetensors.index.json").read_text())
        for path in shards:
            for name in read_shard(path)[2]:
                self.assertEqual(index["weight_map"][name], path.name)


def main():
    global PROGRAM, GENERATOR
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--generator", required=True)
    flags = parser.parse_args()
    PROGRAM, GENERATOR = flags.program, flags.generator
    unittest.main(argv=["make_checkpoint_test"], verbosity=2)


if __name__ == "__main__":
    main()

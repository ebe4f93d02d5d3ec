#!/usr/bin/env python3
"""Packs and weights of the flash-moe engines: every variant loads as it is and after
`moepack import`, and gives the logits of our own pack of the same weights; what is not read is
refused with one line that names it.

The files are made by flashmoe_fixtures.py. "Our own pack" is a converted MLX checkpoint with the
same codes or, where a checkpoint cannot hold them (tiers, ggml's blocks), with the floats that the
codes mean: the reference backend computes with exactly those, so logits agree bit for bit.
"""
import argparse
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import flashmoe_fixtures as fixtures
from cli_runner import CliRunner, conclude

TOKENS = [(i * 37 + 11) % 320 for i in range(24)]


class Suite(CliRunner):
    def __init__(self, program, scratch, grid):
        super().__init__(program, scratch)
        self.model = fixtures.Model(grid)
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps(TOKENS))

    def logits(self, model, *flags):
        out = self.scratch / "logits.f32"
        out.unlink(missing_ok=True)
        done = self.run("logits", model, "--token-ids", self.ids, "-o", out, "--backend",
                        "reference", *flags)
        if done.returncode != 0:
            self.failures.append(f"logits {model.name}: {done.stderr.strip()}")
            return b""
        return out.read_bytes()

    # ---- what the variants must equal ----

    def own_logits(self, name, experts, bits):
        """Logits of a converted checkpoint, and the model directory."""
        checkpoint, converted = self.scratch / (name + "-checkpoint"), self.scratch / (name + "-own")
        self.model.write_checkpoint(checkpoint, experts, bits)
        done = self.run("convert", checkpoint, "-o", converted, "--page-size", 1, "--quiet")
        if done.returncode != 0:
            sys.exit(f"convert {name}: {done.stderr.strip()}")
        shutil.rmtree(checkpoint)
        return self.logits(converted), converted

    def directory(self, name, **residents):
        """A model directory of flash-moe without packs."""
        path = self.scratch / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps(self.model.config()))
        fixtures.write_residents(self.model, path, **residents)
        return path

    # ---- the checks ----

    def check_variant(self, name, write, pack, expected, import_flags=None, **residents):
        """Runs the fixture as it is (import_flags None) and after import."""
        path = self.directory(name, **residents)
        write(path / pack)
        before = {f.name: f.read_bytes() for f in (path / pack).iterdir()}
        if import_flags is None:
            self.expect(self.logits(path) == expected, f"{name}: other logits")
        else:
            done = self.run("logits", path, "--token-ids", self.ids, "-o", self.scratch / "none")
            self.is_error(f"{name} without import", done, [pack, "moepack import"])
        done = self.run("import", path / pack, "--json", *(import_flags or []))
        if not self.expect(done.returncode == 0, f"{name}: import: {done.stderr.strip()}"):
            return path
        report = json.loads(done.stdout)
        self.expect(report["packs"][0]["pack"] == pack and report["packs"][0]["imported"],
                    f"{name}: report {report}")
        for file, data in before.items():
            kept = "layout.flash-moe.json" if file == "layout.json" else file
            self.expect((path / pack / kept).read_bytes() == data, f"{name}: {kept} has changed")
        layout = json.loads((path / pack / "layout.json").read_text())
        self.expect(layout["format_version"] == 1 and layout["source"]["method"] == "import",
                    f"{name}: no manifest of ours after import")
        self.expect(self.logits(path) == expected, f"{name}: other logits after import")
        text = (path / pack / "layout.json").read_bytes()
        again = self.run("import", path / pack, "--quiet")
        self.expect(again.returncode == 0 and (path / pack / "layout.json").read_bytes() == text,
                    f"{name}: a second import changed something")
        return path

    def check_refused(self, name, path, parts, *flags):
        """The model must not run, and import must say the same and write nothing."""
        out = self.scratch / "refused.f32"
        done = self.run("logits", path, "--token-ids", self.ids, "-o", out, *flags)
        self.is_error(name, done, parts)
        self.expect(not out.exists(), f"{name}: left logits behind")

    def check_import_refused(self, name, pack, parts, *flags):
        before = {f.name: f.read_bytes() for f in pack.iterdir()}
        self.is_error(f"{name} (import)", self.run("import", pack, *flags), parts)
        self.expect(before == {f.name: f.read_bytes() for f in pack.iterdir()},
                    f"{name}: a refused import changed the pack")


def edit(path, change):
    document = json.loads(path.read_text())
    replacement = change(document)
    path.write_text(json.dumps(document if replacement is None else replacement))


def uniform_cases(s):
    """Variants a and b, and packs without a manifest; the bytes are those of our own pack."""
    expected, own = s.own_logits("q4", s.model.q4, 4)
    for variant in ("a", "b"):
        path = s.check_variant("uniform-" + variant,
                               lambda p, v=variant: fixtures.write_uniform(s.model, p, s.model.q4, v),
                               "packed_experts", expected)
        for layer in range(s.model.LAYERS):
            file = f"packed_experts/layer_{layer:02d}.bin"
            s.expect((path / file).read_bytes() == (own / file).read_bytes(), f"{file} differs")
    s.check_variant("bare-4bit", lambda p: fixtures.write_uniform(s.model, p, s.model.q4, None),
                    "packed_experts", expected, ["--expert-format", "q4"])
    expected2, _ = s.own_logits("q2", s.model.q2, 2)
    s.check_variant("bare-2bit", lambda p: fixtures.write_uniform(s.model, p, s.model.q2, None),
                    "packed_experts_2bit", expected2, ["--expert-format", "q2"])
    # Scales of another type under the same names and sizes: stated by the manifest, or by the user.
    halves, _ = s.own_logits("half", s.model.half, None)
    s.check_variant("uniform-f16", lambda p: fixtures.write_uniform(s.model, p, s.model.half, "a"),
                    "packed_experts", halves)
    s.check_variant("bare-f16", lambda p: fixtures.write_uniform(s.model, p, s.model.half, None),
                    "packed_experts", halves, ["--expert-format", "q4", "--scale-dtype", "f16"])
    dry_run_and_model_flag(s, expected)
    return expected


def dry_run_and_model_flag(s, expected):
    """A pack may stand elsewhere, and a dry run reads and writes nothing."""
    path = s.directory("elsewhere")
    pack = s.scratch / "lone-pack"
    fixtures.write_uniform(s.model, pack, s.model.q4, None)
    s.check_import_refused("a pack without a model", pack, ["config.json", "--model"],
                           "--expert-format", "q4")
    flags = ["--model", path, "--expert-format", "q4", "--json"]
    done = s.run("import", pack, "--dry-run", *flags)
    report = json.loads(done.stdout or "{}")
    s.expect(done.returncode == 0 and report.get("dry_run") is True
             and report["packs"][0]["formats"] == ["q4 g64"] and report["bytes_read"] == 0,
             f"dry run: {report} {done.stderr}")
    s.expect(not (pack / "layout.json").exists(), "a dry run wrote something")
    done = s.run("import", pack, *flags)
    s.expect(done.returncode == 0, f"--model: {done.stderr.strip()}")
    pack.rename(path / "packed_experts")
    s.expect(s.logits(path) == expected, "--model: other logits")


def split_cases(s, expected):
    """model_weights.bin whole and in chunks, under both names of the first; conv1d with two
    dimensions; and adopted."""
    def write(p):
        fixtures.write_uniform(s.model, p, s.model.q4, "b")
    variants = {"split-writer": {"split": 3},
                "split-loader": {"split": 2, "first_chunk": "model_weights_0.bin"},
                "conv1d-2d": {"conv_rank": 2}}
    for name, residents in variants.items():
        path = s.check_variant(name, write, "packed_experts", expected, **residents)
        before = (path / "model_weights.json").read_bytes()
        done = s.run("import", path, "--json", "--threads", 1)
        s.expect(done.returncode == 0, f"{name}: import of the model: {done.stderr.strip()}")
        report = json.loads(done.stdout or "{}")
        s.expect(report.get("resident", {}).get("imported") is True, f"{name}: {report}")
        s.expect((path / "model_weights.flash-moe.json").read_bytes() == before,
                 f"{name}: the original manifest is not kept")
        s.expect(s.logits(path) == expected, f"{name}: other logits after import of the weights")
        chunk = path / report["resident"]["files"][-1]
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.write_bytes(bytes(data))
        s.check_refused(f"{name}: a flipped bit", path, [chunk.name, "checksum"])


def tiered_cases(s):
    expected, _ = s.own_logits("tiered", s.model.tiered(), None)
    for form in ("dict", "list"):
        s.check_variant("tiered-" + form,
                        lambda p, f=form: fixtures.write_tiered(s.model, p, f),
                        "packed_experts_tiered", expected)
    partly = s.model.tiered()
    partly.update({k: v for k, v in s.model.q4.items() if k[0] == 1})
    expected, _ = s.own_logits("tiered-partly", partly, None)
    s.check_variant("tiered-absent", lambda p: fixtures.write_tiered(s.model, p, "dict", 1),
                    "packed_experts_tiered", expected)


def q3_cases(s):
    expected, own = s.own_logits("q3", s.model.q3, None)
    path = s.check_variant("q3", lambda p: fixtures.write_q3(s.model, p), "packed_experts_Q3",
                           expected)
    # The other backend: decoded blocks and plain floats take the same path there.
    outs = []
    for model in (path, own):
        outs.append(s.scratch / "fast.f32")
        done = s.run("logits", model, "--token-ids", s.ids, "-o", outs[-1], "--backend", "cpu")
        s.expect(done.returncode == 0, f"q3 on the cpu backend: {done.stderr.strip()}")
        outs[-1] = struct.unpack(f"<{len(expected) // 4}f", outs[-1].read_bytes())
    wanted = struct.unpack(f"<{len(expected) // 4}f", expected)
    for got in outs:
        error = max(abs(a - b) for a, b in zip(got, wanted)) / max(map(abs, wanted))
        s.expect(error < 3e-6, f"q3 on the cpu backend is off by {error}")


def pack_refusals(s):
    model, q4 = s.model, s.model.q4

    def pack_of(name, write, pack="packed_experts"):
        path = s.directory(name)
        write(path / pack)
        return path, path / pack

    def uniform(p):
        fixtures.write_uniform(model, p, q4, "a")

    path, pack = pack_of("lz4", lambda p: fixtures.write_lz4(model, p, q4), "packed_experts_lz4")
    s.check_refused("lz4 alone", path, ["LZ4"])
    s.check_refused("lz4 named", path, ["LZ4"], "--pack", "lz4")
    s.check_import_refused("lz4", pack, ["LZ4"], "--expert-format", "q4")
    uniform(path / "packed_experts")
    s.expect(len(s.logits(path)) > 0, "an LZ4 pack gets in the way of another")

    path, pack = pack_of("lz4-inside", lambda p: fixtures.write_lz4(model, p, q4))
    s.check_import_refused("lz4 under another name", pack, ["LZ4"], "--expert-format", "q4")

    path, pack = pack_of("q3-old", lambda p: fixtures.write_abandoned_q3(model, p, True),
                         "packed_experts_Q3")
    s.check_refused("abandoned Q3", path, ["abandoned Q3"])
    s.check_import_refused("abandoned Q3", pack, ["abandoned Q3"])
    path, pack = pack_of("q3-old-bare", lambda p: fixtures.write_abandoned_q3(model, p, False),
                         "packed_experts_Q3")
    s.check_import_refused("abandoned Q3 without manifest", pack, ["abandoned Q3"],
                           "--expert-format", "iq3_xxs", "--down-format", "iq4_xs")

    path, pack = pack_of("missing-layer", uniform)
    (pack / "layer_01.bin").unlink()
    s.check_refused("a missing layer", path, ["layer_01.bin"])
    s.check_import_refused("a missing layer", pack, ["layer_01.bin"])
    path, pack = pack_of("short-layer", uniform)
    file = pack / "layer_01.bin"
    file.write_bytes(file.read_bytes()[:-1])
    s.check_refused("a short layer", path, ["layer_01.bin", str(file.stat().st_size)])

    path, pack = pack_of("bare", lambda p: fixtures.write_uniform(model, p, q4, None))
    for flags in (["--expert-format", "q2"], ["--expert-format", "q3"],
                  ["--expert-format", "bf16"], ["--expert-format", "q4", "--group-size", "32"],
                  ["--expert-format", "iq4_xs"]):
        s.check_import_refused(f"the wrong format {flags}", pack, ["layer_00.bin"], *flags)
    s.check_import_refused("an unknown format", pack, ["q7", "iq3_xxs"], "--expert-format", "q7")
    s.check_import_refused("no format", pack, ["--expert-format"])


def change_json(change):
    return lambda path: edit(path, change)


def set_value(*keys, to):
    def change(document):
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to
    return change_json(change)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def run_manifest_cases(s, pack, cases):
    """(name, writer of the pack, manifest's name, damage, what the error names)"""
    for name, write, file, damage, parts in cases:
        path = s.directory(name)
        write(path / pack)
        damage(path / pack / file)
        s.check_refused(name, path, parts)
        s.check_import_refused(name, path / pack, parts)


def uniform_manifest_refusals(s):
    def uniform(variant):
        return lambda p: fixtures.write_uniform(s.model, p, s.model.q4, variant)

    cases = [
        ("a-cut", uniform("a"), "layout.json", cut, ["layout.json"]),
        ("a-layers", uniform("a"), "layout.json", set_value("num_layers", to=60),
         ["num_layers", "60", "config.json"]),
        ("a-experts", uniform("a"), "layout.json", set_value("num_experts", to=512),
         ["num_experts", "512"]),
        ("a-size", uniform("a"), "layout.json", set_value("expert_size", to=7077888),
         ["expert_size", "7077888"]),
        ("a-offset", uniform("a"), "layout.json", set_value("components", 3, "offset", to=0),
         ["components[3].offset"]),
        ("a-shape", uniform("a"), "layout.json",
         set_value("components", 0, "shape", to=[256, 63]), ["components[0].shape"]),
        ("a-scales", uniform("a"), "layout.json", set_value("components", 1, "dtype", to="F32"),
         ["components[1].dtype", "F32"]),
        ("a-name", uniform("a"), "layout.json", set_value("components", 0, "name", to="gate"),
         ["gate_proj.weight"]),
        ("b-component-size", uniform("b"), "layout.json",
         set_value("components", 0, "size", to=4096), ["components[0].size", "4096"]),
        ("b-two-bits", lambda p: fixtures.write_uniform(s.model, p, s.model.q2, "b"),
         "layout.json", lambda p: None, ["components[0]"]),
        ("b-empty", uniform("b"), "layout.json", set_value("components", to=[]), ["components"]),
    ]
    run_manifest_cases(s, "packed_experts", cases)


def tiered_manifest_refusals(s):
    def tiered(form):
        return lambda p: fixtures.write_tiered(s.model, p, form)

    tiered_manifest = "tiered_manifest.json"
    cases = [
        ("t-cut", tiered("dict"), tiered_manifest, cut, [tiered_manifest]),
        ("t-bits-3", tiered("dict"), tiered_manifest,
         set_value("layers", "0", "experts", 1, "bits", to=3), ["layers.0.experts[1].bits", "is 3"]),
        ("t-bits-swapped", tiered("list"), tiered_manifest,
         set_value("layers", "0", 1, "bits", to=2), ["layers.0[1].size"]),
        ("t-offset", tiered("list"), tiered_manifest,
         set_value("layers", "1", 2, "offset", to=16384), ["layers.1[2].offset", "16384"]),
        ("t-file-size", tiered("dict"), tiered_manifest,
         set_value("layers", "1", "file_size", to=1), ["layers.1.file_size"]),
        ("t-count", tiered("list"), tiered_manifest, set_value("layers", "0", to=[]),
         ["layers.0", "list of 3"]),
        ("t-layer", tiered("list"), tiered_manifest, set_value("layers", "7", to=[]), ["layers.7"]),
        ("t-size", tiered("dict"), tiered_manifest, set_value("expert_size_2bit", to=3932160),
         ["expert_size_2bit", "3932160"]),
        ("t-absent-but-mixed", tiered("dict"), tiered_manifest,
         change_json(lambda d: d["layers"].pop("1") and None), ["layer_01.bin"]),
        ("c-size", tiered("list"), "layout.json", set_value("expert_size_4bit", to=1),
         ["layout.json", "expert_size_4bit"]),
        ("c-alone", tiered("list"), "layout.json",
         lambda p: (p.parent / tiered_manifest).unlink(), ["layout.json", tiered_manifest]),
    ]
    run_manifest_cases(s, "packed_experts_tiered", cases)


def q3_manifest_refusals(s):
    def q3(p):
        fixtures.write_q3(s.model, p)

    cases = [
        ("q3-quant", q3, "layout.json", set_value("components", 0, "quant", to="IQ9_XXS"),
         ["components[0].quant", "IQ9_XXS"]),
        ("q3-swapped", q3, "layout.json", set_value("components", 0, "quant", to="IQ4_XS"),
         ["components[0].size"]),
        ("q3-format", q3, "layout.json", set_value("format", to="q5_streamed"), ["q5_streamed"]),
        ("q3-outlier", q3, "layout.json",
         change_json(lambda d: d["outlier_layers"].update({"27": d["outlier_layers"].pop("1")})),
         ["outlier_layers.27"]),
        ("q3-no-outlier", q3, "layout.json", change_json(lambda d: d.pop("outlier_layers") and None),
         ["layer_01.bin"]),
    ]
    run_manifest_cases(s, "packed_experts_Q3", cases)


def resident_refusals(s):
    base = s.directory("residents", split=2)
    fixtures.write_uniform(s.model, base / "packed_experts", s.model.q4, "b")
    q = "model.layers.1.self_attn.q_proj.weight"
    conv = "model.layers.0.linear_attn.conv1d.weight"

    def case(name, change, parts):
        path = s.scratch / ("resident-" + name)
        shutil.copytree(base, path)
        change(path)
        s.check_refused("weights: " + name, path, parts)
        s.is_error(f"weights: {name} (import)", s.run("import", path), parts)
        s.expect(not (path / "model_weights.flash-moe.json").exists(), f"{name}: wrote something")

    def tensor(name, key, value):
        return lambda p: edit(p / "model_weights.json",
                              lambda d: d["tensors"][name].update({key: value}))

    def split(key, index, value):
        def change(document):
            document["split"][key][index] = value
        return lambda p: edit(p / "model_weights.json", change)

    def rewrite(file, change):
        return lambda p: (p / file).write_bytes(change((p / file).read_bytes()))

    case("cut", rewrite("model_weights.json", lambda d: d[:-9]), ["model_weights.json"])
    case("short chunk", rewrite("model_weights_1.bin", lambda d: d[:-1]), ["model_weights_1.bin"])
    case("long chunk", rewrite("model_weights.bin", lambda d: d + bytes(64)), ["model_weights.bin"])
    case("no chunk", lambda p: (p / "model_weights_1.bin").unlink(), ["model_weights_1.bin"])
    case("offset", tensor(q, "offset", 64), [q, "overlaps"])
    case("far offset", tensor(q, "offset", 1 << 61), ["model_weights_1.bin", str(1 << 61)[:6]])
    case("size", tensor(q, "size", 64), [q + ".size"])
    case("shape", tensor(q, "shape", [256, 60]), [q])
    case("huge shape", tensor(q, "shape", [1 << 62, 1 << 62]), [q + ".shape"])
    case("dtype", tensor(q, "dtype", "U33"), [q + ".dtype", "U33"])
    case("codes of no type", tensor(q, "dtype", "I32"), [q, "I32"])
    case("path", split("chunk_files", 1, "../model_weights_1.bin"), ["split.chunk_files[1]"])
    case("begin", split("split_offsets", 1, 0), ["split.split_offsets[1]"])
    case("conv1d of transformers",
         lambda p: edit(p / "model_weights.json",
                        lambda d: d["tensors"][conv].update(
                            {"shape": [d["tensors"][conv]["shape"][0], 1, 4]})), [conv, "MLX"])
    case("layer too many",
         lambda p: edit(p / "model_weights.json",
                        lambda d: d["tensors"].update(
                            {q.replace(".1.", ".2."): d["tensors"].pop(q)})), ["layers.2", "config.json"])
    case("missing tensor",
         lambda p: edit(p / "model_weights.json",
                        lambda d: (d["tensors"].pop("model.norm.weight"),
                                   d.update(num_tensors=d["num_tensors"] - 1)) and None),
         ["model.norm"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--grid", required=True, help="codebooks.json of tests/golden/ggml")
    args = parser.parse_args()
    grid = json.loads(Path(args.grid).read_text())["iq3_xxs"]["packed"]
    with tempfile.TemporaryDirectory(prefix="moepack-flashmoe-") as scratch:
        suite = Suite(args.program, Path(scratch), grid)
        expected = uniform_cases(suite)
        split_cases(suite, expected)
        tiered_cases(suite)
        q3_cases(suite)
        pack_refusals(suite)
        uniform_manifest_refusals(suite)
        tiered_manifest_refusals(suite)
        q3_manifest_refusals(suite)
        resident_refusals(suite)
    return conclude(suite.failures, f"flash-moe: {suite.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

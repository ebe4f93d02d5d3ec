#!/usr/bin/env python3
"""`moepack index` and `moepack extract` against a reader that shares no code with the project.

The demo checkpoint is written in three layouts (stacked experts, one tensor per expert in several
files, fused gate and up); whatever the layout, the bytes that the index points at and those that
extract writes are those of the original.
"""
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
from cli_runner import CliRunner, conclude, options


class Checks(CliRunner):
    TIMEOUT = 120
    BAD_UTF8 = "strict"


def check_index(checks, layout, source, original, experts_of):
    output = source.parent / "expert_index.json"
    done = checks.run("index", source, "-o", output, "--json")
    checks.expect(done.returncode == 0, f"{layout}: index failed: {done.stderr}")
    if done.returncode != 0:
        return
    index = json.loads(output.read_text())
    summary = json.loads(done.stdout)
    checks.expect(summary["num_experts"] == experts_of and
                  summary["index_bytes"] == output.stat().st_size, f"{layout}: summary {summary}")
    checks.expect(index["model_path"] == str(source), f"{layout}: model_path {index['model_path']}")
    layers = summary["num_layers"]
    checks.expect(list(index["expert_reads"]) == [str(i) for i in range(layers)],
                  f"{layout}: layers {list(index['expert_reads'])}")
    for layer in range(layers):
        reads = index["expert_reads"][str(layer)]
        checks.expect(list(reads) == [f"{p}.{c}" for p in files.PROJECTIONS for c in files.PARTS],
                      f"{layout}: components {list(reads)}")
        for projection in files.PROJECTIONS:
            for part in files.PARTS:
                check_component(checks, f"{layout}: layer {layer} {projection}.{part}", index,
                                reads[f"{projection}.{part}"], original,
                                (layer, projection, part), experts_of)


def check_component(checks, what, index, entry, original, place, num_experts):
    layer, projection, part = place
    name = f"language_model.model.layers.{layer}.mlp.switch_mlp.{projection}.{part}"
    dtype, shape, _ = original[name]
    checks.expect(entry["dtype"] == dtype, f"{what}: dtype {entry['dtype']}")
    stacked = "expert_stride" in entry
    checks.expect(entry["shape"] == (shape if stacked else shape[1:]),
                  f"{what}: shape {entry['shape']}")
    if stacked:
        checks.expect(entry["total_size"] == entry["expert_stride"] * num_experts,
                      f"{what}: total_size {entry['total_size']}")
    for expert in range(num_experts):
        file, offset = ((entry["file"], entry["abs_offset"] + expert * entry["expert_stride"])
                        if stacked else
                        (entry["experts"][expert]["file"], entry["experts"][expert]["abs_offset"]))
        with open(Path(index["model_path"]) / file, "rb") as shard:
            shard.seek(offset)
            found = shard.read(entry["expert_size"])
        checks.expect(found == files.expert_bytes(original, layer, expert, projection, part),
                      f"{what}: expert {expert} is not there")


def check_cache(checks, source, scratch):
    """An entry of HuggingFace's cache: the index names the snapshot that holds the files."""
    snapshot = scratch / "hub" / "models--org--demo" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for path in source.iterdir():
        (snapshot / path.name).symlink_to(path)
    done = checks.run("index", scratch / "hub", "-o", "-")
    direct = checks.run("index", source, "-o", "-")
    checks.expect(done.returncode == 0 and direct.returncode == 0, f"cache: {done.stderr}")
    index = json.loads(done.stdout)
    checks.expect(index["model_path"] == str(snapshot), f"cache: {index['model_path']}")
    checks.expect(index["expert_reads"] == json.loads(direct.stdout)["expert_reads"],
                  "cache: other places than without")
    found = checks.run("inspect", scratch / "hub", "--json")
    checks.expect(json.loads(found.stdout)["path"] == str(snapshot), f"cache: {found.stdout[:200]}")


def extract(checks, path, tensor, *flags):
    """The bytes written, or None."""
    output = Path(tempfile.gettempdir()) / f"moepack-extract-{id(checks)}.bin"
    output.unlink(missing_ok=True)
    done = checks.run("extract", path, tensor, "-o", output, *flags)
    if done.returncode != 0:
        checks.expect(False, f"extract {path.name} {tensor}: {done.stderr.strip()}")
        return None
    content = output.read_bytes()
    output.unlink()
    return content


def check_extract_raw(checks, source, model, original):
    for name, (_, _, content) in original.items():
        if ".switch_mlp." in name:
            continue
        checks.expect(extract(checks, source, name) == content, f"raw {name} of the checkpoint")
        canonical = name.removeprefix("language_model.")
        checks.expect(extract(checks, model, canonical) == content, f"raw {canonical} of the model")
        if name.endswith("layers.1.mlp.gate.weight"):
            stem = canonical.removesuffix(".weight")
            checks.expect(extract(checks, model, stem) == content, f"raw {stem} without .weight")
            checks.expect(extract(checks, source, canonical) == content,
                          f"{canonical} under its canonical name in the checkpoint")
    for layer, expert in ((0, 0), (1, 7), (3, 11)):
        for projection in files.PROJECTIONS:
            for part in files.PARTS:
                name = f"model.layers.{layer}.mlp.experts.{expert}.{projection}.{part}"
                wanted = files.expert_bytes(original, layer, expert, projection, part)
                for path in (model, model / "packed_experts", source):
                    checks.expect(extract(checks, path, name) == wanted, f"{name} of {path.name}")


def check_extract_f32(checks, source, model, original):
    def floats(values):
        return struct.pack(f"<{len(values)}f", *values)

    gate = "language_model.model.layers.2.mlp.gate"
    codes, scales, biases = (original[f"{gate}.{part}"][2] for part in files.PARTS)
    wanted = floats(files.decode_affine(8, 64, codes, scales, biases))
    checks.expect(extract(checks, source, gate, "--f32") == wanted, "8-bit router of the checkpoint")
    checks.expect(extract(checks, source / files.SHARD, gate, "--f32") == wanted,
                  "8-bit router of the single file")
    checks.expect(extract(checks, model, "model.layers.2.mlp.gate", "--f32") == wanted,
                  "8-bit router of the model")
    parts = [files.expert_bytes(original, 1, 5, "down_proj", part) for part in files.PARTS]
    wanted = floats(files.decode_affine(4, 64, *parts))
    for path in (source, model, model / "packed_experts"):
        checks.expect(extract(checks, path, "model.layers.1.mlp.experts.5.down_proj", "--f32")
                      == wanted, f"4-bit expert of {path.name}")
    # Longer than the blocks in which tensors are decoded.
    stacked = "language_model.model.layers.1.mlp.switch_mlp.down_proj"
    parts = [original[f"{stacked}.{part}"][2] for part in files.PARTS]
    checks.expect(extract(checks, source, stacked + ".weight", "--f32")
                  == floats(files.decode_affine(4, 64, *parts)), "all stacked experts decoded")
    norm = "language_model.model.norm.weight"
    content = original[norm][2]
    wanted = floats([files.bf16(content, i) for i in range(len(content) // 2)])
    checks.expect(extract(checks, source, norm, "--f32") == wanted, "norm of the checkpoint")
    checks.expect(extract(checks, model, "model.norm", "--f32") == wanted, "norm of the model")


def check_stdout_and_errors(checks, source, model, scratch, original):
    name = "language_model.model.norm.weight"
    done = checks.run("extract", source, name, "-o", "-", binary=True)
    checks.expect(done.stdout == original[name][2], "extract to stdout")
    for path, tensor, hint in ((source, "language_model.model.norms.weight", name),
                               (model, "model.layers.0.input_layernorms", "input_layernorm"),
                               (model, "model.layers.9.mlp.experts.0.gate_proj", "below 4"),
                               (model / "packed_experts", "x", "experts.E.gate_proj")):
        output = scratch / "never.bin"
        done = checks.run("extract", path, tensor, "-o", output)
        checks.expect(done.returncode == 2 and hint in done.stderr and tensor in done.stderr
                      and done.stderr.count("\n") == 1 and not output.exists()
                      and not output.with_suffix(".bin.tmp").exists(),
                      f"unknown tensor {tensor}: {done.returncode} {done.stderr}")
    # A configuration whose bits or groups the shapes contradict.
    wrong = scratch / "wrong"
    files.write_checkpoint(source, wrong, original)
    for key, value in (("bits", 2), ("bits", 8), ("group_size", 32), ("group_size", 128)):
        config = json.loads((source / "config.json").read_text())
        for block in ("quantization", "quantization_config"):
            config[block][key] = value
        (wrong / "config.json").write_text(json.dumps(config))
        codes = "language_model.model.layers.0.mlp.switch_mlp.up_proj.weight"
        done = checks.run("extract", wrong, codes, "--f32", "-o", scratch / "never.bin")
        checks.expect(done.returncode == 2 and codes in done.stderr and "config.json" in done.stderr
                      and not (scratch / "never.bin").exists(),
                      f"{key} {value}: {done.returncode} {done.stderr}")
    done = checks.run("extract", source, name, "-o", scratch)
    checks.expect(done.returncode == 2, "output that is a directory")


def main():
    args = options().parse_args()
    original = files.read_tensors(args.checkpoint)
    with tempfile.TemporaryDirectory(prefix="moepack-index-") as scratch_name:
        scratch = Path(scratch_name)
        checks = Checks(args.program, scratch)
        layouts = {"stacked": (original, 1),
                   "single": (files.one_tensor_per_expert(original), 3),
                   "fused": (files.fused_gate_up(original), 2)}
        for layout, (tensors, shards) in layouts.items():
            files.write_checkpoint(args.checkpoint, scratch / layout / "demo", tensors, shards)
            check_index(checks, layout, scratch / layout / "demo", original, 12)
        source = scratch / "stacked" / "demo"
        check_cache(checks, source, scratch)
        model = scratch / "model"
        made = checks.run("convert", source, "-o", model, "--quiet")
        checks.expect(made.returncode == 0, made.stderr)
        check_extract_raw(checks, source, model, original)
        check_extract_f32(checks, source, model, original)
        check_stdout_and_errors(checks, source, model, scratch, original)
        shutil.rmtree(model)
    return conclude(checks.failures, f"{checks.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

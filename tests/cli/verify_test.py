#!/usr/bin/env python3
"""What `moepack verify` finds and what it does not mind.

Models are damaged behind the program's back, with manifests kept consistent where they can be, so
that only the comparison in question can tell. Bytes and error figures are computed here from the
files.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
from cli_runner import CliRunner, conclude, options

LAYOUT = "packed_experts/layout.json"


class Checks(CliRunner):
    TIMEOUT = 120
    BAD_UTF8 = "strict"

    def convert(self, source, name, *flags):
        done = self.run("convert", source, "-o", self.scratch / name, "--quiet", *flags)
        self.expect(done.returncode == 0, f"convert {name}: {done.stderr}")
        return self.scratch / name

    def copy(self, model):
        target = self.scratch / "damaged"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(model, target)
        return target

    def verify(self, what, wanted, lines, model, *flags, stderr=()):
        """Exit code, and parts of stdout: each of `lines` is a list that one line must hold."""
        done = self.run("verify", model, *flags)
        self.expect(done.returncode == wanted, f"{what}: exit {done.returncode}: {done.stderr}")
        for parts in lines:
            self.expect(any(all(part in line for part in parts)
                            for line in done.stdout.splitlines()),
                        f"{what}: no line with {parts} in: {done.stdout[:600]}")
        for part in stderr:
            self.expect(part in done.stderr, f"{what}: stderr lacks {part!r}: {done.stderr[-400:]}")
        return done


def edit_json(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def edit_bytes(path, change):
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def component(model, name):
    """(offset in the record, size) of a component of the usual layout, and the stride."""
    layout = json.loads((model / LAYOUT).read_text())
    for entry in layout["components"]:
        if entry["name"] == name:
            return entry["offset"], entry["size"], layout["expert_stride"]
    raise KeyError(name)


def copied_cases(checks, source, model):
    checks.verify("sound", 0, [], model, stderr=["48 records", "no difference"])
    checks.verify("sound, with source", 0, [], model, "--against", source,
                  stderr=["byte for byte", "no difference"])
    checks.verify("lone pack", 0, [], model / "packed_experts", "--against", source)

    damaged = checks.copy(model)
    offset, _, stride = component(model, "up_proj.scales")
    at = 7 * stride + offset + 5
    before = (model / "packed_experts/layer_02.bin").read_bytes()[at]

    def flip(data):
        data[at] ^= 64
    edit_bytes(damaged / "packed_experts/layer_02.bin", flip)
    checks.verify("flipped bit", 1, [["layer_02.bin", "layer 2, expert 7", "checksum"]], damaged,
                  stderr=["1 difference"])
    checks.verify("flipped bit, with source", 1,
                  [["layer_02.bin", "layer 2, expert 7", "up_proj.scales", f"offset {at}:",
                    f"expected {before}, found {before ^ 64}"]], damaged, "--against", source)

    # Consistent in itself: two experts have changed places.
    def swap_records(data):
        a, b = data[:stride], data[4 * stride:5 * stride]
        data[:stride], data[4 * stride:5 * stride] = b, a

    def swap_sums(layout):
        sums = layout["layers"][1]["checksums"]
        sums[0], sums[4] = sums[4], sums[0]
    damaged = checks.copy(model)
    edit_bytes(damaged / "packed_experts/layer_01.bin", swap_records)
    edit_json(damaged / LAYOUT, swap_sums)
    checks.verify("swapped experts alone", 0, [], damaged)
    checks.verify("swapped experts, with source", 1,
                  [["layer 1, expert 0", "gate_proj.weight"], ["layer 1, expert 4"]], damaged,
                  "--against", source)
    edit_json(damaged / LAYOUT, lambda d: d["source"].update(method="another"))
    checks.verify("swapped experts by another method", 1,
                  [["layer 1, expert 0", "relative error", "below"]], damaged, "--against", source)


def manifest_cases(checks, source, other, model):
    checks.verify("another source", 1, [["layout.json", "fingerprint"]], model, "--against", other)
    damaged = checks.copy(model)

    def no_sums(layout):
        for layer in layout["layers"]:
            layer["checksums"] = ["0" * 16] * layout["num_experts"]
    edit_json(damaged / LAYOUT, no_sums)
    done = checks.verify("many differences", 1, [["and 28 more differences"]], damaged)
    checks.expect(done.stdout.count("\n") == 21, f"{done.stdout.count(chr(10))} lines")

    damaged = checks.copy(model)
    edit_json(damaged / "model_weights.json", lambda d: d["conventions"].update(norm="one_plus"))
    checks.verify("another convention", 1, [["model_weights.json", "conventions"]], damaged,
                  "--against", source)

    # The tensor that lies last is taken out, and nothing else changes.
    damaged = checks.copy(model)
    weights = json.loads((damaged / "model_weights.json").read_text())
    last = max(weights["tensors"], key=lambda name: weights["tensors"][name]["offset"])
    weights["data_size"] = weights["tensors"].pop(last)["offset"]
    weights["num_tensors"] -= 1
    (damaged / "model_weights.json").write_text(json.dumps(weights))
    edit_bytes(damaged / "model_weights.bin", lambda d: d.__delitem__(slice(weights["data_size"],
                                                                            None)))
    stem = last.removesuffix(".weight")
    checks.verify("missing resident", 1, [["model_weights.json", stem, "missing"]], damaged)
    checks.verify("missing resident, with source", 1, [[stem, "missing", "source"]], damaged,
                  "--against", source)


def not_finite_cases(checks, source):
    """Copied as they are: no damage, but named by convert, to which run refers."""
    tensors = files.read_tensors(source)
    names = ["language_model.model.layers.1.mlp.switch_mlp.up_proj.biases",
             "language_model.model.norm.weight"]
    for name in names:
        dtype, shape, content = tensors[name]
        tensors[name] = (dtype, shape, content[:-2] + b"\xc0\x7f")
    poisoned = checks.scratch / "poisoned"
    files.write_checkpoint(source, poisoned, tensors)
    model = checks.scratch / "poisoned.model"
    done = checks.run("convert", poisoned, "-o", model)
    noted = [line for line in done.stderr.splitlines() if "NaN or infinite" in line]
    checks.expect(done.returncode == 0 and len(noted) == 1 and "2 (" in noted[0] and
                  all(name in noted[0] for name in names), f"not finite: {done.stderr}")
    again = checks.scratch / "again.model"
    report = json.loads(checks.run("convert", poisoned, "-o", again, "--json", "--quiet").stdout)
    checks.expect(report["not_finite_tensors"] == names, f"not finite: {report}")
    checks.verify("not finite", 0, [], model, "--against", poisoned)
    done = checks.run("run", model, "-p", "a", "-n", "1")
    checks.expect(done.returncode == 2 and "moepack convert names them" in done.stderr,
                  f"run of what is not finite: {done.stderr}")


def file_cases(checks, source, model):
    damaged = checks.copy(model)
    (damaged / "packed_experts/layer_00.bin.tmp").write_bytes(b"x")
    (damaged / "notes.txt").write_text("x")
    checks.verify("left-over files", 0, [], damaged, stderr=["layer_00.bin.tmp: left over",
                                                             "notes.txt: is no part"])
    (damaged / "moepack.unfinished").touch()
    checks.verify("unfinished", 2, [], damaged, stderr=["not finished"])

    padded = checks.convert(source, "padded", "--page-size", "16384")
    size = json.loads((padded / LAYOUT).read_text())["expert_size"]

    def dirty(data):
        data[size + 100] = 9
    edit_bytes(padded / "packed_experts/layer_03.bin", dirty)
    checks.verify("dirty padding", 1,
                  [["layer_03.bin", "layer 3, expert 0", f"offset {size + 100}:", "padding",
                    "found 9"]], padded)

    # Behind a resident component that is no multiple of 64 bytes.
    weights = json.loads((model / "model_weights.json").read_text())["tensors"]
    name, entry = next((n, e) for n, e in sorted(weights.items()) if e["size"] % 64 != 0)
    gap = entry["offset"] + entry["size"]
    damaged = checks.copy(model)
    edit_bytes(damaged / "model_weights.bin", lambda d: d.__setitem__(gap + 1, 3))
    checks.verify(f"dirty padding behind {name}", 1,
                  [["model_weights.bin", f"offset {gap + 1}:", "padding", "found 3"],
                   ["model_weights.bin", "checksum"]], damaged)

    two = checks.copy(model)
    shutil.copytree(two / "packed_experts", two / "packed_experts_b")
    edit_bytes(two / "packed_experts_b/layer_00.bin", lambda d: d.__setitem__(3, d[3] ^ 1))
    checks.verify("two packs", 1, [["packed_experts_b", "expert 0"]], two)
    checks.verify("the sound one of two", 0, [], two, "--pack", "packed_experts")
    checks.verify("the damaged one of two", 1, [["packed_experts_b"]], two, "--pack", "b")
    checks.verify("no such pack", 2, [], two, "--pack", "c", stderr=["packed_experts_b"])
    checks.verify("a checkpoint", 2, [], source, stderr=["no model directory"])
    undescribed_cases(checks, model)


def undescribed_cases(checks, model):
    """A pack that lost its manifest is refused where run refuses it, and named elsewhere."""
    two = checks.copy(model)
    shutil.copytree(two / "packed_experts", two / "packed_experts_b")
    (two / "packed_experts_b" / "layout.json").unlink()
    checks.verify("a pack without manifest", 0, [], two,
                  stderr=["packed_experts_b: holds layer files but no manifest"])
    shutil.move(two / "packed_experts/layout.json", two / "packed_experts_b/layout.json")
    refused = checks.run("run", two, "-p", "a", "-n", "1")
    checks.expect("packed_experts: holds layer files but no manifest" in refused.stderr,
                  f"run: {refused.stderr}")
    done = checks.run("verify", two, "--quiet")
    checks.expect((done.returncode, done.stderr) == (2, refused.stderr),
                  f"verify says otherwise than run: {done.returncode} {done.stderr}")
    checks.verify("the pack with a manifest", 0, [], two, "--pack", "b")


def relative_error(model, original, name):
    """Of one expert matrix of a q2 model against the q4 source, computed here."""
    _, _, layer, _, _, expert, projection = name.split(".")
    data = (model / f"packed_experts/layer_{int(layer):02}.bin").read_bytes()

    def stored(part):
        offset, size, stride = component(model, f"{projection}.{part}")
        start = int(expert) * stride + offset
        return data[start:start + size]
    here = files.decode_affine(2, 64, *(stored(part) for part in files.PARTS))
    there = files.decode_affine(4, 64, *(
        files.expert_bytes(original, int(layer), int(expert), projection, part)
        for part in files.PARTS))
    squares = sum((a - b) ** 2 for a, b in zip(here, there))
    return ((squares / sum(b * b for b in there)) ** 0.5,
            max(abs(a - b) for a, b in zip(here, there)))


def rounded_cases(checks, source, original):
    model = checks.convert(source, "rounded", "--expert-format", "q2", "--resident", "q3")
    done = checks.verify("rounded", 0, [], model, "--against", source, "--json")
    report = json.loads(done.stdout)
    checks.expect(report["ok"] and report["num_differences"] == 0, "rounded: ok")
    experts = [c for c in report["compared"] if c["part"].startswith("experts")]
    checks.expect(len(experts) == 1 and experts[0]["matrices"] == 144 and
                  not experts[0]["copied"], f"rounded: {experts}")
    relative, largest = relative_error(model, original, experts[0]["worst_tensor"])
    checks.expect(abs(relative / experts[0]["worst_relative_rms"] - 1) < 1e-9,
                  f"relative error {relative}, verify says {experts[0]['worst_relative_rms']}")
    checks.expect(largest <= experts[0]["largest_error"], "largest error")
    residents = {c["format"] for c in report["compared"] if c["part"] == "residents"}
    checks.expect(residents == {"bf16", "q3 g64", "q8 g64"}, f"residents {residents}")
    again = json.loads(checks.run("verify", model, "--against", source, "--json", "-t", "1").stdout)
    for key in ("seconds", "threads"):
        report.pop(key), again.pop(key)
    checks.expect(report == again, "one thread reports what two report")

    # The scale of group 3 in row 10 doubles: its exponent lies in the high byte.
    offset, _, stride = component(model, "down_proj.scales")
    at = 5 * stride + offset + (10 * 4 + 3) * 2 + 1

    def double(data):
        data[at] += 1 if data[at - 1] & 128 else 0
        data[at - 1] ^= 128
    damaged = checks.copy(model)
    edit_bytes(damaged / "packed_experts/layer_01.bin", double)
    checks.verify("doubled scale", 1, [["layer 1, expert 5", "checksum"],
                                       ["layer 1, expert 5", "down_proj", "farther", "row 10,"]],
                  damaged, "--against", source)

    # One code of a resident tensor, whose error is then more than a step.
    weights = json.loads((model / "model_weights.json").read_text())["tensors"]
    name = "model.layers.1.linear_attn.in_proj_z.weight"
    start = weights[name]["offset"] + 96  # the second row
    damaged = checks.copy(model)
    edit_bytes(damaged / "model_weights.bin", lambda d: d.__setitem__(start, d[start] ^ 4))
    checks.verify("changed code", 1, [["model_weights.bin", "checksum"],
                                      [name.removesuffix(".weight"), "1 values", "row 1, column 0"]],
                  damaged, "--against", source)


def foreign_cases(checks, source, model):
    """The same records under the manifest that the flash-moe engines write: no checksums."""
    foreign = checks.scratch / "foreign"
    shutil.copytree(model, foreign)
    layout = json.loads((foreign / LAYOUT).read_text())
    (foreign / LAYOUT).write_text(json.dumps(
        {key: layout[key] for key in ("expert_size", "num_layers", "num_experts", "components")}))
    checks.verify("foreign pack", 0, [], foreign, stderr=["no checksums", "moepack import"])
    checks.verify("foreign pack alone", 0, [], foreign / "packed_experts", stderr=["no checksums"])
    checks.verify("foreign pack, with source", 0, [], foreign, "--against", source,
                  stderr=["does not say", "byte for byte"])
    done = checks.run("inspect", foreign)
    checks.expect(done.returncode == 0 and "checksums: none" in done.stdout, done.stdout)
    name = "model.layers.1.mlp.experts.3.up_proj"
    there = checks.run("extract", foreign, name, "-o", checks.scratch / "a")
    checks.run("extract", model, name, "-o", checks.scratch / "b")
    checks.expect(there.returncode == 0 and (checks.scratch / "a").read_bytes()
                  == (checks.scratch / "b").read_bytes(), "extract from a foreign pack")
    edit_bytes(foreign / "packed_experts/layer_01.bin", lambda d: d.__setitem__(7, d[7] ^ 1))
    checks.verify("foreign pack, flipped", 0, [], foreign)
    checks.verify("foreign pack, flipped, with source", 1,
                  [["layer 1, expert 0", "gate_proj.weight", "offset 7:"]], foreign, "--against",
                  source)
    done = checks.run("import", foreign)
    checks.expect(done.returncode == 0, done.stderr)
    checks.verify("imported", 0, [], foreign, stderr=["no difference"])
    edit_bytes(foreign / "packed_experts/layer_01.bin", lambda d: d.__setitem__(9, d[9] ^ 1))
    checks.verify("imported, flipped", 1, [["layer 1, expert 0", "checksum"]], foreign)


def mixed_cases(checks, source, original):
    """Models whose parts are of several sources, which differ in the norms and in the experts."""
    def changed(name, content):
        return "norm" in name or "switch_mlp" in name and name.endswith("scales")
    tensors = {name: (dtype, shape, content[2:] + content[:2] if changed(name, content) else content)
               for name, (dtype, shape, content) in original.items()}
    wrong = checks.scratch / "wrong"
    files.write_checkpoint(source, wrong, tensors, 3)
    for second in (checks.scratch / "second", checks.scratch / "elsewhere" / source.name):
        what = f"mixed with {second.parent.name}/{second.name}"
        second.parent.mkdir(exist_ok=True)
        files.write_checkpoint(source, second, tensors, 2)
        model = checks.convert(source, f"mixed with {second.parent.name}")
        checks.succeeds("quantize", model, "--method", "rtn", "--bits", "2", "--from", second,
                        "--name", "b2", "--quiet")
        b2 = "pack packed_experts_b2 is of another source"
        residents = "resident tensors are of another source"
        checks.verify(f"{what}: the model's", 0, [], model, "--against", source, stderr=[b2])
        checks.verify(f"{what}: the pack's", 0, [], model, "--against", second,
                      stderr=[residents, "pack packed_experts is of another source"])
        checks.verify(f"{what}: the pack alone", 0, [], model, "--pack", "b2", "--against", second,
                      stderr=[residents])
        checks.verify(f"{what}: the pack, the model's", 0, [], model, "--pack", "b2", "--against",
                      source, stderr=[b2])
        checks.verify(f"{what}: neither", 1, [["packed_experts/layout.json", "fingerprint"],
                                              ["packed_experts_b2/layout.json", "fingerprint"]],
                      model, "--against", wrong)
        edit_bytes(model / "model_weights.bin", lambda d: d.__setitem__(0, d[0] ^ 64))
        checks.verify(f"{what}: damaged", 1, [["model_weights.bin", "source's bytes"]], model,
                      "--against", source)


def unknown_source_cases(checks, source, model):
    """Models for flash-moe, which do not say what they were made from."""
    foreign, file = checks.scratch / "exported", checks.scratch / "exported.gguf"
    checks.succeeds("export", model, "-o", foreign, "--quiet")
    checks.succeeds("quantize", foreign, "--method", "clip", "--bits", "4", "--name", "c4",
                    "--quiet")
    checks.verify("requantized, unknown source", 0, [], foreign, "--against", source,
                  stderr=["packed_experts_c4, q4 g64 to q4 g64", "relative error"])
    checks.succeeds("export", "--gguf", model, "-o", file, "--quiet")
    checks.succeeds("overlay", "--gguf", file, "--tensors", "embedding", foreign, "--quiet")
    checks.verify("overlaid, unknown source", 0, [], foreign, "--against", file,
                  stderr=["resident tensors do not say", "packed_experts does not say",
                          "packed_experts_c4 does not say", "overlay embedding"])
    checks.verify("overlaid, the model's", 0, [], foreign, "--against", source,
                  stderr=["compared all the same", "overlay embedding.bin is of another source"])
    edit_bytes(foreign / "packed_experts/layer_01.bin", lambda d: d.__setitem__(7, d[7] ^ 1))
    checks.verify("overlaid, flipped", 1, [["packed_experts/layer_01.bin", "offset 7:"]], foreign,
                  "--against", source)


def main():
    args = options().parse_args()
    original = files.read_tensors(args.checkpoint)
    with tempfile.TemporaryDirectory(prefix="moepack-verify-") as scratch_name:
        scratch = Path(scratch_name)
        checks = Checks(args.program, scratch)
        source = scratch / "demo"
        files.write_checkpoint(args.checkpoint, source, original)
        other = scratch / "other"
        files.write_checkpoint(args.checkpoint, other, files.fused_gate_up(original), 2)
        model = checks.convert(source, "model")
        copied_cases(checks, source, model)
        manifest_cases(checks, source, other, model)
        file_cases(checks, source, model)
        rounded_cases(checks, source, original)
        foreign_cases(checks, source, model)
        mixed_cases(checks, source, original)
        unknown_source_cases(checks, source, model)
        not_finite_cases(checks, source)
        fused = checks.convert(other, "from_fused")
        checks.verify("fused source", 0, [], fused, "--against", other, stderr=["byte for byte"])
    return conclude(checks.failures, f"{checks.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

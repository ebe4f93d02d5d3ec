#!/usr/bin/env python3
"""`convert --keep-prediction`: the tensors that predict further tokens, byte for byte, and every
command that knows of them. The demo checkpoint gets a block of them in many types."""
import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
from cli_runner import CliRunner, conclude, options, tree_hash

MANIFEST, DATA = "prediction.json", "prediction.bin"
MIB = 1 << 20


def block_tensors(large):
    """name -> (dtype, shape, bytes) of a made-up block, codes with their scales among it."""
    noise = random.Random(7)
    shapes = {"mtp.fc.weight": ("BF16", [256, 512], 2),
              "mtp.norm.weight": ("F32", [256], 4),
              "mtp.layers.0.mlp.experts.3.up_proj.weight": ("F8_E4M3", [33, 7], 1),
              "mtp.layers.0.mlp.experts.3.up_proj.weight_scale_inv": ("F32", [], 4),
              "mtp.layers.0.mlp.switch_mlp.down_proj.weight": ("U32", [12, 8, 5], 4),
              "mtp.layers.0.mlp.switch_mlp.down_proj.scales": ("F16", [12, 8, 1], 2),
              "mtp.empty": ("BF16", [0, 3], 2),
              "language_model.mtp.more": ("I64", [3], 8)}
    out = {}
    for name, (dtype, shape, width) in shapes.items():
        count = width
        for dimension in shape:
            count *= dimension
        out[name] = (dtype, shape, noise.randbytes(count))
    if large:
        out["mtp.large"] = ("U8", [large], os.urandom(large))
    return out


class Checks(CliRunner):
    def convert(self, source, name, *flags, threads=2):
        done = self.run("convert", source, "-o", self.scratch / name, "-t", threads, "--json",
                        "--quiet", *flags)
        if not self.expect(done.returncode == 0, f"convert {name}: {done.stderr}"):
            return {}
        return json.loads(done.stdout)

    def copy(self, model):
        target = self.scratch / "damaged"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(model, target)
        return target


def check_contents(checks, model, block):
    manifest = json.loads((model / MANIFEST).read_text())
    data = (model / DATA).read_bytes()
    checks.expect(list(manifest["tensors"]) == sorted(block), f"names {list(manifest['tensors'])}")
    checks.expect(manifest["data_size"] == len(data), "data_size")
    used = 0
    for name, (dtype, shape, content) in sorted(block.items()):
        entry = manifest["tensors"][name]
        stored = data[entry["offset"]:entry["offset"] + entry["size"]]
        checks.expect(stored == content and entry["type"] == dtype and entry["shape"] == shape,
                      f"{name}: {entry}")
        checks.expect(entry["offset"] % 64 == 0, f"{name} at {entry['offset']}")
        checks.expect(not any(data[used:entry["offset"]]), f"padding before {name}")
        used = entry["offset"] + entry["size"]


def check_kept(checks, source, block):
    plain, kept = checks.scratch / "plain", checks.scratch / "kept"
    before = checks.convert(source, "plain")
    after = checks.convert(source, "kept", "--keep-prediction")
    checks.expect(sorted(before["skipped_tensors"]) == sorted(block), f"{before['skipped_tensors']}")
    checks.expect(before["prediction_tensors"] == 0, "kept without being asked")
    checks.expect(after["skipped_tensors"] == [] and after["prediction_tensors"] == len(block) and
                  after["prediction_bytes"] == (kept / DATA).stat().st_size, f"{after}")
    total = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    checks.expect(after["total_bytes"] == total, f"total {after['total_bytes']}, on disk {total}")
    check_contents(checks, kept, block)
    # Everything else as without, but for the list of what was left out.
    copy = checks.copy(kept)
    (copy / MANIFEST).unlink()
    (copy / DATA).unlink()
    layout = "packed_experts/layout.json"
    two = [json.loads((m / layout).read_text()) for m in (plain, copy)]
    checks.expect(two[0]["report"].pop("skipped_tensors") != two[1]["report"].pop("skipped_tensors")
                  and two[0] == two[1], "layout.json differs elsewhere")
    shutil.copy(plain / layout, copy / layout)
    checks.expect(tree_hash(copy) == tree_hash(plain), "another file differs")
    for threads in (1, 5):
        checks.convert(source, f"again{threads}", "--keep-prediction", threads=threads)
        checks.expect(tree_hash(checks.scratch / f"again{threads}") == tree_hash(kept),
                      f"other bytes with {threads} threads")
    return kept


def check_commands(checks, source, model, block):
    done = checks.succeeds("verify", model, "--against", source, "--json", "--quiet")
    report = json.loads(done.stdout)
    compared = [c for c in report["compared"] if c["part"] == "prediction"]
    checks.expect(report["ok"] and report["notes"] == [] and
                  sum(c["matrices"] for c in compared) == len(block) and
                  all(c["copied"] for c in compared), f"verify: {report}")
    found = json.loads(checks.succeeds("inspect", model, "--json", "--tensors").stdout)
    checks.expect(found["prediction"]["num_tensors"] == len(block) and
                  {t["format"] for t in found["prediction"]["types"]} ==
                  {dtype for dtype, _, _ in block.values()}, f"inspect: {found['prediction']}")
    listed = {t["name"]: t for t in found["tensors"] if t["file"] == DATA}
    checks.expect({n: (t["dtype"], t["shape"], t["bytes"]) for n, t in listed.items()} ==
                  {n: (d, s, len(b)) for n, (d, s, b) in block.items()}, f"listed {listed}")
    out = checks.scratch / "tensor"
    for name, (dtype, _, content) in block.items():
        checks.succeeds("extract", model, name.removesuffix(".weight"), "-o", out)
        checks.expect(out.read_bytes() == content, f"extract {name}")
        if dtype in ("F32", "F16", "BF16"):
            decoded = checks.run("extract", model, name, "--f32", "-o", "-", binary=True)
            there = checks.run("extract", source, name, "--f32", "-o", "-", binary=True)
            checks.expect(decoded.returncode == 0 and decoded.stdout == there.stdout,
                          f"extract --f32 {name}: {decoded.stderr}")
    out.unlink()
    checks.refuses("codes in float32", ["prediction.bin", "U32", "--f32"], "extract", model,
                   "mtp.layers.0.mlp.switch_mlp.down_proj", "--f32", "-o", out)
    checks.refuses("no such tensor", ["mtp.fc.weight"], "extract", model, "mtp.fc.weights", "-o", out)
    # A run loads nothing of them: whatever stands there, the logits are the same.
    ids = checks.scratch / "ids.json"
    ids.write_text(json.dumps([i * 7 % 4000 for i in range(20)]))
    sums = []
    damaged = checks.copy(model)
    (damaged / MANIFEST).write_text("{")
    (damaged / DATA).unlink()
    for path in (model, damaged):
        checks.succeeds("logits", path, "--token-ids", ids, "-o", out, "--cache-mb", "4")
        sums.append(hashlib.sha256(out.read_bytes()).digest())
        out.unlink()
    checks.expect(sums[0] == sums[1], "logits depend on the prediction tensors")


def check_damage(checks, source, model, block):
    data = (model / DATA).read_bytes()
    manifest = json.loads((model / MANIFEST).read_text())
    for name, entry in manifest["tensors"].items():
        if entry["size"] == 0:
            continue
        for at in (entry["offset"], entry["offset"] + entry["size"] - 1):
            copy = checks.copy(model)
            (copy / DATA).write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1:])
            done = checks.run("verify", copy, "--quiet")
            checks.expect(done.returncode == 1 and DATA in done.stdout and name in done.stdout and
                          "checksum" in done.stdout, f"flip in {name}: {done.stdout}{done.stderr}")
            done = checks.run("verify", copy, "--against", source, "--quiet")
            checks.expect(done.returncode == 1 and f"offset {at}:" in done.stdout and
                          "source's bytes" in done.stdout, f"flip in {name}: {done.stdout}")
    copy = checks.copy(model)
    gap = manifest["tensors"]["language_model.mtp.more"]["size"]
    (copy / DATA).write_bytes(data[:gap + 1] + b"x" + data[gap + 2:])
    done = checks.run("verify", copy, "--quiet")
    checks.expect(done.returncode == 1 and "padding" in done.stdout, f"padding: {done.stdout}")
    for what, content in (("short", data[:-1]), ("long", data + b"x"), ("empty", b"")):
        copy = checks.copy(model)
        (copy / DATA).write_bytes(content)
        for command in ("verify", "inspect"):
            checks.is_error(f"{what} data, {command}", checks.run(command, copy), [DATA])
    copy = checks.copy(model)
    (copy / DATA).unlink()
    checks.is_error("no data", checks.run("verify", copy), [DATA])
    copy = checks.copy(model)
    (copy / MANIFEST).unlink()
    done = checks.run("verify", copy)
    checks.expect(done.returncode == 0 and "prediction.bin: is no part" in done.stderr,
                  f"no manifest: {done.stderr}")
    # Of the source a tensor more, a tensor less, another shape.
    fewer = {n: t for n, t in block.items() if n != "mtp.fc.weight"}
    reshaped = {**block, "mtp.fc.weight": ("BF16", [512, 256], block["mtp.fc.weight"][2])}
    for what, other, words in (("less", fewer, ["mtp.fc.weight", "not in the source"]),
                               ("reshaped", reshaped, ["mtp.fc.weight", "[512, 256]"]),
                               ("more", {**block, "mtp.z": ("U8", [3], b"abc")},
                                ["mtp.z", "missing"])):
        directory = checks.scratch / f"source_{what}"
        files.write_checkpoint(source, directory, {**trunk_of(source), **other})
        copy = checks.copy(model)
        fingerprint = json.loads(checks.succeeds("inspect", directory, "--json").stdout)[
            "checkpoint"]["fingerprint"]
        for name in (MANIFEST, "packed_experts/layout.json"):
            document = json.loads((copy / name).read_text())
            document["source"]["fingerprint"] = fingerprint
            (copy / name).write_text(json.dumps(document))
        done = checks.run("verify", copy, "--against", directory, "--quiet")
        checks.expect(done.returncode == 1 and all(w in done.stdout for w in words),
                      f"{what}: {done.stdout}{done.stderr}")
        document = json.loads((copy / MANIFEST).read_text())
        document["source"]["fingerprint"] = "0" * 16
        (copy / MANIFEST).write_text(json.dumps(document))
        done = checks.run("verify", copy, "--against", directory, "--quiet")
        checks.expect(done.returncode == 1 and "source.fingerprint" in done.stdout,
                      f"{what}, fingerprint: {done.stdout}{done.stderr}")


def trunk_of(source):
    return {n: t for n, t in files.read_tensors(source).items() if "mtp" not in n}


def fields_in(document, path=()):
    for key, value in document.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from fields_in(value, (*path, key))


def check_manifest_damage(checks, model):
    """Every field of the manifest with values that it must not have: one line, exit code 2."""
    document = json.loads((model / MANIFEST).read_text())
    for path, value in fields_in(document):
        free = path in (("source", "name"), ("quantization",))
        wrong = [5, None, [], ...]
        if isinstance(value, int):
            wrong = [value + 1, -1, 1.5, 1 << 62, 1 << 64, str(value), None, ...]
        elif isinstance(value, str) and not free:
            wrong += ["", "zzz", value + "x"]
        elif isinstance(value, list):
            wrong = [5, None, "x", [-1], [1.5], value + [2], [1 << 63, 1 << 63], ...]
        for replacement in wrong:
            copy = json.loads(json.dumps(document))
            at = copy
            for key in path[:-1]:
                at = at[key]
            if replacement is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = replacement
            target = checks.scratch / "linked"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(model, target, copy_function=os.link)
            (target / MANIFEST).unlink()
            (target / MANIFEST).write_text(json.dumps(copy))
            what = f"{'.'.join(path)} = {str(replacement)[:30]}"
            for command in ("verify", "inspect"):
                checks.is_error(f"{what}, {command}", checks.run(command, target), [MANIFEST])


def check_resume(checks, source, kept):
    """A run of one layer leaves the file and its journal; damage to it is made good."""
    wanted = tree_hash(kept)
    for damage in (None, "flip", "cut", "remove"):
        output = checks.scratch / "resumed"
        shutil.rmtree(output, ignore_errors=True)
        checks.convert(source, "resumed", "--keep-prediction", "--layers", "1")
        data = output / DATA
        checks.expect(data.exists() and not (output / MANIFEST).exists(), "unfinished already")
        when = data.stat().st_mtime_ns
        content = data.read_bytes()
        if damage == "flip":
            data.write_bytes(content[:70] + b"?" + content[71:])
        elif damage == "cut":
            data.write_bytes(content[:-1])
        elif damage == "remove":
            data.unlink()
        checks.convert(source, "resumed", "--keep-prediction")
        checks.expect(tree_hash(output) == wanted, f"after {damage}: other bytes")
        if damage is None:
            checks.expect(data.stat().st_mtime_ns == when, "made again though it was whole")
    shutil.rmtree(output)
    checks.convert(source, "resumed", "--keep-prediction", "--layers", "1")
    checks.is_error("resumed without the flag",
                    checks.run("convert", source, "-o", output, "--quiet"), ["other options"])


def check_reclaim(checks, source, kept, tensors):
    shards = checks.scratch / "shards"
    files.write_checkpoint(source, shards, tensors, shards=4)
    report = checks.convert(shards, "reclaimed", "--keep-prediction", "--reclaim")
    checks.expect(len(report["removed_shards"]) == 4 and report["kept_shards"] == [], f"{report}")
    for name in (DATA, "model_weights.bin", "packed_experts/layer_02.bin"):
        checks.expect((checks.scratch / "reclaimed" / name).read_bytes() ==
                      (kept / name).read_bytes(), f"--reclaim: {name}")


def check_memory(checks, checkpoint):
    """A tensor of 160 MiB passes through a few mebibytes."""
    source = checks.scratch / "large"
    files.write_checkpoint(checkpoint, source,
                           {**files.read_tensors(checkpoint), **block_tensors(160 * MIB)})
    for what, arguments in (("convert", ("convert", source, "-o", checks.scratch / "large_model",
                                         "--keep-prediction", "-t", 2, "--quiet")),
                            ("verify", ("verify", checks.scratch / "large_model", "--against",
                                        source, "-t", 2, "--quiet"))):
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.execv(checks.program, [str(checks.program), *map(str, arguments)])
        _, status, usage = os.wait4(pid, 0)
        checks.expect(status == 0, f"{what} of a large tensor: {status}")
        checks.expect(usage.ru_maxrss < 80 * 1024, f"{what} takes {usage.ru_maxrss} KiB")


def main():
    parser = options(__doc__)
    parser.add_argument("--sanitized", action="store_true", help="memory is not measured")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="moepack-prediction-") as scratch:
        checks = Checks(args.program, Path(scratch))
        block = block_tensors(0)
        tensors = {**files.read_tensors(args.checkpoint), **block}
        source = checks.scratch / "source"
        files.write_checkpoint(args.checkpoint, source, tensors, shards=3)
        kept = check_kept(checks, source, block)
        check_commands(checks, source, kept, block)
        check_damage(checks, source, kept, block)
        check_manifest_damage(checks, kept)
        check_resume(checks, source, kept)
        check_reclaim(checks, source, kept, tensors)
        if not args.sanitized:
            check_memory(checks, args.checkpoint)
        return conclude(checks.failures, f"{checks.checks} checks, {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

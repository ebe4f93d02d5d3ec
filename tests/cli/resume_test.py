#!/usr/bin/env python3
"""Interrupted conversions: whatever happens at whatever moment, the next run completes, and the
directory is byte for byte the one of an undisturbed run.

A preloaded library (tests/support/fault_shim.cpp) kills the converter after every sync, rename and
removal and at random moments, and makes reads and writes fail. A small tmpfs is a full disk.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options, tree_hash

SHARD = "model.safetensors"
RANDOM_KILLS = 50


def read_shard(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_shard(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, body, at = {}, b"", 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        body += data
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def split_checkpoint(single, target):
    """One shard a layer, and one for everything else that also holds a part of layer 1."""
    shutil.copytree(single, target, ignore=shutil.ignore_patterns("golden", "*.safetensors*"))
    header, body = read_shard(single / SHARD)
    groups = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        layer = name.split(".layers.")[1].split(".")[0] if ".layers." in name else "rest"
        if "layers.1.mlp.switch_mlp.up_proj" in name:
            layer = "rest"
        groups.setdefault(layer, {})[name] = (entry["dtype"], entry["shape"], body[begin:end])
    index = {}
    for i, (_, tensors) in enumerate(sorted(groups.items())):
        file = f"model-{i + 1:05}-of-{len(groups):05}.safetensors"
        write_shard(target / file, tensors)
        index.update({name: file for name in tensors})
    (target / (SHARD + ".index.json")).write_text(json.dumps({"weight_map": index}))
    return len(groups)


class Tester(CliRunner):
    TIMEOUT = 120

    def __init__(self, args, source, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.source = source
        self.output = scratch / "model"

    def convert(self, *flags, fault=None, source=None, output=None, threads=2):
        return self.run("convert", source or self.source, "-o", output or self.output, "-t", threads,
                        "--quiet", *flags, fault=fault)

    def clear(self):
        shutil.rmtree(self.output, ignore_errors=True)

    def undisturbed(self, *flags, threads=2):
        self.clear()
        result = self.convert(*flags, threads=threads)
        self.expect(result.returncode == 0, f"undisturbed run: {result.stderr}")
        return tree_hash(self.output)

    def count(self, *flags, source=None):
        self.clear()
        counts = self.scratch / "counts"
        self.convert(*flags, fault=f"count:{counts}", source=source)
        return self.counted(counts)

    def completes(self, name, expected, *flags, source=None):
        """The next run finishes what is there; a directory without a marker is finished or free."""
        marked = (self.output / "moepack.unfinished").exists()
        if not marked and (self.output / "config.json").exists():
            self.expect(tree_hash(self.output) == expected, f"{name}: finished, another hash")
            return
        result = self.convert(*flags, source=source)
        self.expect(result.returncode == 0, f"{name}: next run: {result.stderr.strip()}")
        self.expect(tree_hash(self.output) == expected, f"{name}: another hash")

    def is_no_model(self, name):
        """What a kill leaves is refused by readers, unless the conversion was finished."""
        if not (self.output / "moepack.unfinished").exists():
            return
        result = self.run("logits", self.output, "--token-ids", self.scratch / "ids.json", "-o",
                          self.scratch / "logits.f32")
        self.expect(result.returncode == 2 and "not finished" in result.stderr,
                    f"{name}: readers take it: {result.stderr.strip()}")

    def kill_points(self, expected, counts):
        points = [(op, n) for op in ("sync", "rename") for n in range(1, counts[op] + 1)]
        rng = random.Random(3)
        points += [("any", rng.randint(1, counts["any"])) for _ in range(RANDOM_KILLS)]
        for op, n in points:
            name = f"killed after {op} {n}"
            self.clear()
            result = self.convert(fault=f"kill-after:{op}:{n}")
            if result.returncode == 0:  # the order of two threads' calls differs between runs
                self.expect(tree_hash(self.output) == expected, f"{name}: not killed, other hash")
                continue
            self.expect(result.returncode == -9, f"{name}: exit code {result.returncode}")
            self.is_no_model(name)
            self.completes(name, expected)
        return len(points)

    def killed_again_and_again(self, expected):
        """Every run is killed a little later than the one before."""
        self.clear()
        for n in range(1, 1000):
            if self.convert(fault=f"kill-after:any:{3 * n}").returncode == 0:
                break
        self.expect(tree_hash(self.output) == expected, "killed again and again: another hash")

    def failing_calls(self, expected, counts):
        cases = [("EIO", "read", 1 + counts["read"] * i // 8) for i in range(8)]
        cases += [("ENOSPC", "write", 1 + counts["write"] * i // 8) for i in range(8)]
        cases += [("ENOSPC", "sync", n) for n in range(1, counts["sync"] + 1)]
        cases += [("EIO", "rename", n) for n in range(1, counts["rename"] + 1)]
        for error, op, n in cases:
            name = f"{error} at {op} {n}"
            self.clear()
            result = self.convert(fault=f"{error}:{op}:{n}")
            lines = result.stderr.splitlines()
            self.expect(result.returncode == 2 and len(lines) == 1,
                        f"{name}: exit {result.returncode}, {result.stderr.strip()}")
            if op == "read" and lines:
                self.expect(".safetensors" in lines[0] or ".bin" in lines[0],
                            f"{name}: names no file: {lines[0]}")
            self.completes(name, expected)
        return len(cases)

    def read_errors_name_the_tensor(self):
        header, _ = read_shard(self.source / SHARD)
        counts = self.count()
        named = 0
        for n in range(3, counts["read"], max(1, counts["read"] // 40)):
            self.clear()
            result = self.convert(fault=f"EIO:read:{n}", threads=1)
            if result.returncode != 2 or SHARD not in result.stderr:
                continue
            named += 1
            self.expect(any(f"tensor {name}," in result.stderr for name in header)
                        and "offset " in result.stderr,
                        f"read error {n} names no tensor or offset: {result.stderr.strip()}")
        self.expect(named >= 20, f"only {named} read errors of the shard")

    def full_disk(self, expected):
        """A tmpfs is too small; then it grows, and the same command completes."""
        mount = self.scratch / "small"
        mount.mkdir()
        size = sum(p.stat().st_size for p in self.source.glob("*")) * 3 // 4
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount],
                          capture_output=True, check=False).returncode != 0:
            return False
        try:
            output = mount / "model"
            result = self.convert(output=output)
            self.expect(result.returncode == 2 and "free" in result.stderr
                        and not output.exists(), f"too small from the start: {result.stderr}")
            # Room enough at the start, taken by another program meanwhile.
            result = self.convert("--layers", "0-1", output=output)
            self.expect(result.returncode == 0, f"two layers fit: {result.stderr}")
            result = self.convert(output=output)
            self.expect(result.returncode == 2 and len(result.stderr.splitlines()) == 1,
                        f"full: {result.returncode} {result.stderr}")
            kept = (output / "packed_experts" / "layer_01.bin").exists()
            self.expect(kept, "full: finished layers are gone")
            subprocess.run(["mount", "-o", f"remount,size={size * 3}", mount], check=True)
            result = self.convert(output=output)
            self.expect(result.returncode == 0, f"after it grew: {result.stderr}")
            self.expect(tree_hash(output) == expected, "full disk: another hash")
        finally:
            subprocess.run(["umount", mount], check=False)
        return True

    def mismatches(self, expected):
        """Other options and another source are refused, and nothing is lost; --restart starts again."""
        self.clear()
        self.convert("--layers", "0-1")
        before = tree_hash(self.output)
        other = self.scratch / "other"
        shutil.copytree(self.source, other, ignore=shutil.ignore_patterns("golden"))
        config = json.loads((other / "config.json").read_text())
        config["rms_norm_eps"] = 1e-5
        (other / "config.json").write_text(json.dumps(config))
        for name, result in (("options", self.convert("--page-size", "16384")),
                             ("source", self.convert(source=other))):
            self.expect(result.returncode == 2 and "--restart" in result.stderr,
                        f"other {name}: {result.returncode} {result.stderr.strip()}")
            self.expect(tree_hash(self.output) == before, f"other {name}: something changed")
        self.completes("after refusals", expected)
        self.clear()
        self.convert("--layers", "3", "--page-size", "16384")
        self.completes("--restart", expected, "--restart")
        result = self.convert("--layers", "9")
        self.expect(result.returncode == 2, "a finished model is converted again")

    def lost_files(self, expected):
        """Finished files that vanish or shrink are made again."""
        for file in ("packed_experts/layer_01.bin", "model_weights.bin"):
            for cut in (False, True):
                self.clear()
                self.convert("--layers", "0-2")
                if cut:
                    os.truncate(self.output / file, 100)
                else:
                    (self.output / file).unlink()
                self.completes(f"{file} lost", expected)

    def torn_journal(self, expected):
        self.clear()
        self.convert("--layers", "0-2")
        whole = (self.output / "moepack.unfinished").read_bytes()
        for size in list(range(0, len(whole), 97)) + [len(whole) - 1]:
            self.clear()
            self.convert("--layers", "0-2")
            (self.output / "moepack.unfinished").write_bytes(whole[:size])
            self.completes(f"journal of {size} bytes", expected)
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        self.clear()
        self.convert("--layers", "0-2")
        (self.output / "moepack.unfinished").write_bytes(damaged)
        self.completes("damaged journal", expected)

    def damaged_layer(self, expected):
        """A finished layer that does not read back as it was written is made again."""
        self.clear()
        self.convert("--layers", "0-2")
        for file in ("packed_experts/layer_01.bin", "model_weights.bin"):
            data = bytearray((self.output / file).read_bytes())
            data[1000] ^= 1
            (self.output / file).write_bytes(data)
        self.completes("damaged layer", expected)

    def other_weights(self, expected):
        """A source of the same headers but other values is another source."""
        self.clear()
        self.convert("--layers", "0-1")
        before = tree_hash(self.output)
        other = self.scratch / "tuned"
        shutil.copytree(self.source, other)
        data = bytearray((other / SHARD).read_bytes())
        header_end = 8 + struct.unpack_from("<Q", data)[0]
        for at in range(header_end, len(data), 64):
            data[at] ^= 1
        (other / SHARD).write_bytes(data)
        result = self.convert(source=other)
        self.expect(result.returncode == 2 and "other weights" in result.stderr,
                    f"other weights: {result.returncode} {result.stderr.strip()}")
        self.expect(tree_hash(self.output) == before, "other weights: something changed")
        result = self.convert("--restart", source=other)
        self.expect(result.returncode == 0, f"other weights, --restart: {result.stderr}")
        self.expect(tree_hash(self.output) != expected, "--restart kept the old weights")

    def finished_but_for_the_marker(self, expected, counts):
        """After a kill before the marker goes, only the same conversion may call it finished."""
        self.clear()
        self.convert(fault=f"kill-after:sync:{counts['sync'] - 1}")
        self.expect((self.output / "moepack.unfinished").exists(), "no marker to test with")
        result = self.convert("--page-size", "16384")
        self.expect(result.returncode == 2 and "--restart" in result.stderr,
                    f"complete journal, other options: {result.returncode} {result.stderr}")
        self.completes("complete journal", expected)

    def odd_outputs(self):
        """Links and loops in the output are somebody else's files."""
        self.clear()
        self.convert("--layers", "0")
        loop = self.output / "packed_experts" / "loop"
        loop.symlink_to(loop)
        result = self.convert()
        self.expect(result.returncode == 2 and "loop" in result.stderr
                    and len(result.stderr.splitlines()) == 1,
                    f"a loop of links: {result.returncode} {result.stderr}")

    def reclaim_frees_space(self, split, expected):
        """A disk that holds the model once and a little more is enough."""
        mount = self.scratch / "tight"
        mount.mkdir()
        size = sum(p.stat().st_size for p in split.glob("*")) * 17 // 10
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount],
                          capture_output=True, check=False).returncode != 0:
            return
        try:
            shutil.copytree(split, mount / "work")
            result = self.convert(source=mount / "work", output=mount / "model")
            self.expect(result.returncode == 2, "two copies fit: the test shows nothing")
            result = self.convert("--reclaim", source=mount / "work", output=mount / "model")
            self.expect(result.returncode == 0, f"--reclaim on a tight disk: {result.stderr}")
            self.expect(tree_hash(mount / "model") == expected, "tight disk: another hash")
        finally:
            subprocess.run(["umount", mount], check=False)

    def damaged_journal_without_source(self, split, work, expected):
        """With shards gone the output is the only copy: a damaged journal removes nothing."""
        self.clear()
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(split, work)
        self.convert("--reclaim", "--layers", "0-2", source=work)
        marker = self.output / "moepack.unfinished"
        whole = marker.read_bytes()
        for at in (20, whole.index(b"\n") + 30, len(whole) - 30):
            damaged = bytearray(whole)
            damaged[at] ^= 1
            marker.write_bytes(damaged)
            files = {p: p.read_bytes() for p in self.output.rglob("*.bin")}
            for flags in ((), ("--reclaim",), ("--restart",)):
                result = self.convert(*flags, source=work)
                self.expect(result.returncode == 2, f"damaged journal at {at}: "
                            f"exit {result.returncode} {result.stderr}")
                self.expect(files == {p: p.read_bytes() for p in self.output.rglob("*.bin")},
                            f"damaged journal at {at}: files changed")
        marker.write_bytes(whole)
        self.completes("journal repaired", expected, source=work)

    def stale_headers(self, split, work, expected):
        """--restart forgets the headers of what was there."""
        self.clear()
        other = self.scratch / "revision"
        shutil.copytree(split, other)
        for path in other.glob("*.safetensors"):  # other headers, same names
            data = path.read_bytes()
            (size,) = struct.unpack_from("<Q", data)
            path.write_bytes(struct.pack("<Q", size + 8) + data[8:8 + size] + b" " * 8
                             + data[8 + size:])
        self.convert("--reclaim", fault="kill-after:rename:3", source=other)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(split, work)
        self.convert("--reclaim", "--restart", "--layers", "0-1", source=work)
        self.completes("--restart over headers", expected, "--reclaim", source=work)

    def reclaim(self, expected):
        """Shards go one by one; no kill ever loses a tensor."""
        split = self.scratch / "split"
        shards = split_checkpoint(self.source, split)
        work = self.scratch / "work"

        def fresh():
            self.clear()
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(split, work)

        fresh()
        result = self.convert(source=work)
        self.expect(result.returncode == 0 and len(list(work.glob("*.safetensors"))) == shards,
                    "without --reclaim shards are left alone")
        name = json.loads((self.output / "packed_experts/layout.json").read_text())["source"]
        plain = tree_hash(self.output)
        self.expect(name["name"] == "work", "the source's name")
        fresh()
        counts = self.count("--reclaim", source=work)
        self.expect(not list(work.glob("*.safetensors")), "--reclaim leaves shards")
        self.expect(tree_hash(self.output) == plain, "--reclaim changes the bytes")
        points = [(op, n) for op in ("sync", "rename", "unlink")
                  for n in range(1, counts[op] + 1)]
        for op, n in points:
            name = f"--reclaim, killed after {op} {n}"
            fresh()
            self.convert("--reclaim", fault=f"kill-after:{op}:{n}", source=work)
            self.completes(name, plain, "--reclaim", source=work)
            self.expect(not list(work.glob("*.safetensors")), f"{name}: shards are left")
        # A continuation may not start over when the source is gone.
        fresh()
        self.convert("--reclaim", "--layers", "0-1", source=work)
        gone = shards - len(list(work.glob("*.safetensors")))
        self.expect(gone >= 1, "no shard went after two layers")
        result = self.convert("--restart", "--page-size", "16384", source=work)
        self.expect(result.returncode == 2 and "only copy" in result.stderr,
                    f"--restart without a source: {result.stderr}")
        self.completes("continued without --reclaim", plain, source=work)
        # Links, as HuggingFace's cache is made of: the file behind the link goes too.
        self.clear()
        shutil.rmtree(work)
        blobs = self.scratch / "blobs"
        shutil.copytree(split, blobs)
        work.mkdir()
        for path in blobs.iterdir():
            (work / path.name).symlink_to(path)
        self.completes("links", plain, "--reclaim", source=work)
        self.expect(not list(blobs.glob("*.safetensors"))
                    and not list(work.glob("*.safetensors")), "links: shards are left")
        self.keeps_shards_with_skipped_tensors(split, work, shards)
        self.reclaim_frees_space(split, plain)
        self.damaged_journal_without_source(split, work, plain)
        self.stale_headers(split, work, plain)
        return len(points)

    def keeps_shards_with_skipped_tensors(self, split, work, shards):
        self.clear()
        shutil.rmtree(work)
        shutil.copytree(split, work)
        first = sorted(work.glob("*.safetensors"))[0]
        header, body = read_shard(first)
        tensors = {n: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])])
                   for n, e in header.items() if n != "__metadata__"}
        tensors["vision_tower.patch.weight"] = ("BF16", [2], b"abcd")
        write_shard(first, tensors)
        index = json.loads((work / (SHARD + ".index.json")).read_text())
        index["weight_map"]["vision_tower.patch.weight"] = first.name
        (work / (SHARD + ".index.json")).write_text(json.dumps(index))
        result = self.convert("--reclaim", source=work)
        self.expect(result.returncode == 0, result.stderr)
        self.expect([p.name for p in work.glob("*.safetensors")] == [first.name],
                    "the shard with a skipped tensor must stay, and only it")
        self.expect(shards > 2, "too few shards for this test")


def main():
    args = options(__doc__, shim=True).parse_args()
    if args.shim is None:
        sys.exit("resume_test: --shim is missing")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        (scratch / "ids.json").write_text("[1, 2, 3]")
        source = scratch / "source"
        shutil.copytree(args.checkpoint, source, ignore=shutil.ignore_patterns("golden"))
        test = Tester(args, source, scratch)
        expected = test.undisturbed()
        test.expect(test.undisturbed(threads=1) == expected, "one thread: another hash")
        counts = test.count()
        kills = test.kill_points(expected, counts)
        test.killed_again_and_again(expected)
        errors = test.failing_calls(expected, counts)
        test.read_errors_name_the_tensor()
        disk = test.full_disk(expected)
        test.mismatches(expected)
        test.lost_files(expected)
        test.torn_journal(expected)
        test.damaged_layer(expected)
        test.other_weights(expected)
        test.finished_but_for_the_marker(expected, counts)
        test.odd_outputs()
        reclaims = test.reclaim(expected)
        return conclude(
            test.failures,
            f"{kills} kills, {errors} failing calls, {reclaims} kills with --reclaim, "
            f"{'a full disk' if disk else 'SKIPPED: no full disk, mounting is not permitted'}; "
            f"{test.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

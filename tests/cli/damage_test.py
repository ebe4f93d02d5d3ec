#!/usr/bin/env python3
"""Inputs damaged field by field: every command that reads them says so in one line, or finds the
difference, and takes neither long nor much memory.

Each field of the headers, manifests and configuration is replaced by values that it must not have,
data files are cut and their bits flipped, and every command is run on the result. What the exit code
must be stands with the damage: 2 with one line on stderr that names the file, 1 with lines on stdout
(verify), or 0 where the damage lies in what the command does not read.
"""
import argparse
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkpoint_files as files

SECONDS = 60
# Of commands that run no model: what they may allocate, and what they may touch. The inputs are
# smaller than 10 MB.
ADDRESS_SPACE = 1 << 30
RESIDENT_KIB = 80 * 1024
COMMANDS_OF_MODEL = ("inspect", "extract", "verify", "logits")


class Runner:
    def __init__(self, program, scratch, every):
        self.program = program
        self.every = every
        self.skipped = 0
        self.turns = {}  # runs so far, by place and command
        self.scratch = scratch
        self.failures = []
        self.damages = 0
        self.runs = 0
        self.most_kib = 0
        self.limited = memory_can_be_limited(program)
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([i * 7 % 4000 for i in range(200)]))

    def run(self, limits, *args):
        """Runs a command by itself: (exit code, stdout, stderr, peak KiB, seconds)."""
        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if limits:
                resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        start = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([self.program, *map(str, args)], stdout=out, stderr=err,
                                       preexec_fn=limit)
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid != 0:
                    break
                if time.monotonic() - start > SECONDS:
                    process.kill()
                    _, status, usage = os.wait4(process.pid, 0)
                    break
                time.sleep(0.0005)
            process.returncode = 0
            out.seek(0)
            err.seek(0)
            return (os.waitstatus_to_exitcode(status), out.read().decode(errors="replace"),
                    err.read().decode(errors="replace"), usage.ru_maxrss, time.monotonic() - start)

    def arguments(self, command, path, against, output):
        expert = "model.layers.1.mlp.experts.3.up_proj"
        return {"convert": ("convert", path, "-o", output, "--quiet"),
                "inspect": ("inspect", path, "--tensors"),
                "index": ("index", path, "-o", output),
                "extract": ("extract", path, expert, "-o", output, "--f32"),
                "verify": ("verify", path, "--quiet", "-t", "2"),
                "against": ("verify", against, "--against", path, "--quiet", "-t", "2"),
                "run": ("run", path, "-p", "x", "-n", "1", "-t", "2"),
                "logits": ("logits", path, "--token-ids", self.ids, "-o", output, "-t", "2",
                           "--cache-mb", "4")}[command]

    def check(self, good, what):
        self.runs += 1
        if not good:
            self.failures.append(what)

    def takes_turn(self, command):
        """Of the runs of one command at one place of a script the first and every Nth, which is
        another one for other commands."""
        caller = sys._getframe(2)
        kind = (caller.f_code.co_filename, caller.f_lineno, command)
        turn = self.turns[kind] = self.turns.get(kind, -1) + 1
        return turn == 0 or (turn + ord(command[0])) % self.every == 0

    def expect(self, damage, command, path, wanted, names=(), against=None):
        """Runs one command on one damaged input. `wanted` are the exit codes that are allowed."""
        if damage != "undamaged" and not self.takes_turn(command):
            self.skipped += 1
            return
        self.runs += 1
        output = self.scratch / "output"
        code, out, err, kib, seconds = self.run(
            self.limited and command not in ("logits", "run"), *self.arguments(command, path, against, output))
        problems = []
        if code not in wanted:
            problems.append(f"exit code {code}, not {wanted}")
        if code == 2:
            lines = err.splitlines()
            if len(lines) != 1 or not lines[0].startswith("moepack: "):
                problems.append(f"{len(lines)} lines on stderr")
            if "out of memory" in err or "internal error" in err:
                problems.append("not a message about the input")
            problems += [f"does not name {n!r}" for n in names if n not in err]
        if code == 1:
            problems += [f"does not name {n!r}" for n in names if n not in out]
        left = [p.name for p in self.scratch.glob("output*")]
        if code != 0 and left:
            problems.append(f"left {left} behind")
        for name in left:
            path_left = self.scratch / name
            shutil.rmtree(path_left) if path_left.is_dir() else path_left.unlink()
        if command not in ("logits", "run"):
            self.most_kib = max(self.most_kib, kib)
            if self.limited and kib > RESIDENT_KIB:
                problems.append(f"{kib} KiB of memory")
        if seconds > SECONDS:
            problems.append(f"{seconds:.1f} s")
        if problems:
            self.failures.append(f"{damage}, {command}: {'; '.join(problems)}\n    "
                                 f"{(err + out).strip()[:400]}")


def link_tree(source, target):
    """A copy whose files are shared until they are replaced."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)


def replace(path, content):
    path.unlink(missing_ok=True)
    path.write_bytes(content)


# ---- values that a field must not have ----

def header_damages(header, tensor):
    """(what, change of the header's text) for every field of one tensor."""
    def edited(**fields):
        entry = {k: v for k, v in {**header[tensor], **fields}.items() if v is not ...}
        return json.dumps({**header, tensor: entry}).encode()
    begin, end = header[tensor]["data_offsets"]
    shape = header[tensor]["shape"]
    for value in ("F7", "", "u32", 5, None, [], "F64", ...):
        yield f"dtype {value}", edited(dtype=value)
    for value in ([], [0], [-1], [1.5], ["x"], 7, None, [1 << 63, 1 << 63], [1 << 64],
                  shape[:-1] + [shape[-1] + 1], [[1]], {}, ...):
        yield f"shape {value}", edited(shape=value)
    for value in ([begin], [begin, end, end], [end, begin], [begin + 1, end + 1], [begin, end - 1],
                  [begin, end + 1], [begin, 1 << 62], [-1, end], [begin, 1 << 64], "x", None,
                  [None, None], [0.5, 1.5], {}, ...):
        yield f"data_offsets {value}", edited(data_offsets=value)


def whole_header_damages(text):
    yield "no object", b"[" + text + b"]"
    yield "empty", b""
    yield "only spaces", b"   "
    yield "a NUL", text[:40] + b"\0" + text[40:]
    yield "bad UTF-8", text.replace(b"gate_proj", b"gate\xff\xfe", 1)
    yield "cut", text[:-3]
    yield "text behind", text + b"x"
    yield "deep nesting", text[:-1] + b', "deep": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    yield "metadata of numbers", text[:-1] + b', "__metadata__": {"a": 1}}'
    yield "a tensor that is a list", text[:-1] + b', "list": [1, 2]}'
    yield "byte order mark", b"\xef\xbb\xbf" + text


def with_header(data, text):
    (size,) = struct.unpack_from("<Q", data)
    return struct.pack("<Q", len(text)) + text + data[8 + size:]


def shard_damages(checkpoint):
    data = (checkpoint / files.SHARD).read_bytes()
    header, start = files.read_header(checkpoint / files.SHARD)
    layer = "language_model.model.layers.1.mlp"
    for tensor in (f"{layer}.switch_mlp.up_proj.weight", f"{layer}.switch_mlp.up_proj.scales",
                   "language_model.model.norm.weight"):
        for what, text in header_damages(header, tensor):
            yield f"{tensor.rsplit('.', 2)[-2]} {what}", with_header(data, text)
    for what, text in whole_header_damages(data[8:start]):
        yield f"header: {what}", with_header(data, text)
    for length in (0, 1, start - 9, start - 7, len(data), 100_000_001, 1 << 63, (1 << 64) - 1):
        yield f"header length {length}", struct.pack("<Q", length) + data[8:]
    for cut in (0, 1, 7, 8, 9, start // 2, start - 1, start, start + 1, len(data) // 2,
                len(data) - 1):
        yield f"cut at {cut}", data[:cut]
    yield "a byte behind", data + b"\0"


def checkpoint_cases(runner, checkpoint, model):
    copy = runner.scratch / "checkpoint"
    everything = ("convert", "inspect", "index", "extract", "against")
    for what, content in shard_damages(checkpoint):
        runner.damages += 1
        link_tree(checkpoint, copy)
        replace(copy / files.SHARD, content)
        for command in everything:
            runner.expect(f"shard: {what}", command, copy, {2}, (files.SHARD,), model)
    for what, content in index_damages(json.loads((checkpoint / files.INDEX).read_text())):
        runner.damages += 1
        link_tree(checkpoint, copy)
        replace(copy / files.INDEX, content)
        for command in everything:
            runner.expect(f"index: {what}", command, copy, {2}, ("safetensors",), model)


def index_damages(index):
    weight_map = index["weight_map"]
    name = sorted(weight_map)[50]

    def mapped(value):
        return json.dumps({**index, "weight_map": {**weight_map, name: value}}).encode()
    for value in (5, None, [], "", "..", "../" + files.SHARD, "a/b", "a\\b", "C:x", "a\nb",
                  "absent.safetensors", "x" * 5000):
        yield f"shard {str(value)[:40]!r}", mapped(value)
    for value in ({}, [], 5, None, "x"):
        yield f"weight_map {value}", json.dumps({**index, "weight_map": value}).encode()
    yield "no weight_map", json.dumps({"metadata": {}}).encode()
    yield "a list", b"[]"
    yield "a tensor less", json.dumps(
        {**index, "weight_map": {k: v for k, v in weight_map.items() if k != name}}).encode()
    yield "a tensor more", json.dumps(
        {**index, "weight_map": {**weight_map, "ghost": files.SHARD}}).encode()
    text = json.dumps(index).encode()
    yield "a tensor twice", text.replace(b'"weight_map": {', b'"weight_map": {"' + name.encode()
                                         + b'": "model.safetensors", ')
    for cut in (0, 1, len(text) // 2, len(text) - 1):
        yield f"cut at {cut}", text[:cut]


def config_cases(runner, checkpoint, model):
    """Values that are no dimensions, and dimensions that contradict the tensors."""
    copy = runner.scratch / "checkpoint"
    config = json.loads((checkpoint / "config.json").read_text())
    keys = ("hidden_size", "num_hidden_layers", "num_experts", "num_experts_per_tok",
            "moe_intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads",
            "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
            "linear_conv_kernel_dim")
    for key in keys:
        for value in (0, -1, 1.5, "x", [], {}, True, 1 << 40, 1 << 64):
            runner.damages += 1
            link_tree(checkpoint, copy)
            replace(copy / "config.json", json.dumps(
                {**config, "text_config": {**config["text_config"], key: value}}).encode())
            for command in ("convert", "inspect", "index", "against"):
                runner.expect(f"config {key} {value}", command, copy, {2}, ("config.json",), model)
        # In range, but the tensors say something else: inspect tells, the others refuse.
        runner.damages += 1
        link_tree(checkpoint, copy)
        changed = config["text_config"][key] * 2
        replace(copy / "config.json", json.dumps(
            {**config, "text_config": {**config["text_config"], key: changed}}).encode())
        if key == "num_experts_per_tok":
            continue
        for command, wanted in (("convert", {2}), ("index", {2}), ("inspect", {0, 2})):
            runner.expect(f"config {key} doubled", command, copy, wanted, (), model)
    text = (checkpoint / "config.json").read_bytes()
    for what, content in ([(f"cut at {n}", text[:n]) for n in (0, 1, 300, len(text) // 2)] +
                          [("a list", b"[]"), ("deep", b"[" * 9000), ("NUL", text[:50] + b"\0")]):
        runner.damages += 1
        link_tree(checkpoint, copy)
        replace(copy / "config.json", content)
        for command in ("convert", "inspect", "index", "against"):
            runner.expect(f"config: {what}", command, copy, {2}, ("config.json",), model)


# ---- model directories ----

def fields_in(document, path=()):
    """(path, value) of every member and element below a JSON document, `report` left out."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if key in ("report", "config"):
            continue
        yield (*path, key), value
        if isinstance(value, (dict, list)):
            yield from fields_in(value, (*path, key))


def edited(document, path, value):
    """The text of the document with one member replaced (... removes it)."""
    copy = json.loads(json.dumps(document))
    at = copy
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(copy).encode()


def wrong_values(path, value):
    """Values that the field at `path` of a manifest must not have."""
    if isinstance(value, bool) or value is None:
        return [7]
    if isinstance(value, int):
        return [value + 1, 0 if value != 0 else 3, -1, 1.5, 1 << 62, 1 << 64, str(value), None]
    if isinstance(value, str):
        return [5, None, []] + ([] if free_text(path) else ["", "zzz"])
    return [5, None, "x"]


def memory_can_be_limited(program):
    """False for a program built with a sanitizer, which reserves terabytes."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    return subprocess.run([program, "--version"], preexec_fn=limit, check=False,
                          capture_output=True).returncode == 0


def free_text(path):
    """Whether any string will do at `path`, or only the data can contradict it."""
    return path[-1] in ("name", "method", "model") and path[0] in ("source", "model")


def sample(items, most):
    """At most `most` of them, evenly spread."""
    items = list(items)
    step = max(1, len(items) // most)
    return items[::step]


def manifest_cases(runner, model, name, most):
    """`most` fields of a manifest, each with all its wrong values."""
    document = json.loads((model / name).read_text())
    copy = runner.scratch / "damaged"
    for path, value in sample(fields_in(document), most):
        for wrong in wrong_values(path, value):
            runner.damages += 1
            link_tree(model, copy)
            replace(copy / name, edited(document, path, wrong))
            what = f"{name} {'.'.join(map(str, path))} = {str(wrong)[:30]!r}"
            # A file name that is well-formed leads to a file that is not there.
            named = "zzz" if path[-1] == "file" and wrong == "zzz" else Path(name).name
            for command in COMMANDS_OF_MODEL:
                runner.expect(what, command, copy, {2}, (named,))
    text = (model / name).read_bytes()
    for what, content in ([(f"cut at {n}", text[:n]) for n in (0, 1, len(text) // 2, len(text) - 3)]
                          + [("a list", b"[]"), ("NUL", text[:30] + b"\0" + text[30:]),
                             ("deep", text[:-2] + b', "x": ' + b"[" * 9000),
                             ("an unknown key", text.rstrip()[:-1] + b', "wings": 2}'),
                             ("a key twice", text.rstrip()[:-1] + b', "format_version": 1}')]):
        runner.damages += 1
        link_tree(model, copy)
        replace(copy / name, content)
        for command in COMMANDS_OF_MODEL:
            runner.expect(f"{name}: {what}", command, copy, {2}, (Path(name).name,))


def checksum_cases(runner, model):
    """Hashes that are well-formed but wrong, so that the data contradict them."""
    copy = runner.scratch / "damaged"
    layout = "packed_experts/layout.json"
    document = json.loads((model / layout).read_text())
    for layer in range(document["num_layers"]):
        runner.damages += 1
        link_tree(model, copy)
        sums = ["0123456789abcdef"] * document["num_experts"]
        replace(copy / layout, edited(document, ("layers", layer, "checksums"), sums))
        file = document["layers"][layer]["file"]
        runner.expect(f"checksums of layer {layer}", "verify", copy, {1},
                      (file, f"layer {layer}, expert 0", "0123456789abcdef"))
        runner.expect(f"checksums of layer {layer}", "logits", copy, {2}, (file, "checksum"))
    runner.damages += 1
    link_tree(model, copy)
    document = json.loads((model / "model_weights.json").read_text())
    replace(copy / "model_weights.json", edited(document, ("checksum",), "0123456789abcdef"))
    runner.expect("checksum of the residents", "verify", copy, {1}, ("model_weights.bin",))
    runner.expect("checksum of the residents", "logits", copy, {2}, ("model_weights.bin",))


def flipped(data, offset):
    return data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1:]


def data_cases(runner, source, model):
    copy = runner.scratch / "damaged"
    document = json.loads((model / "packed_experts/layout.json").read_text())
    size, stride = document["expert_size"], document["expert_stride"]
    places = [component["offset"] + at * (component["size"] - 1)
              for component in document["components"] for at in (0, 1)]
    for layer, expert in ((0, 0), (3, 11)):
        file = document["layers"][layer]["file"]
        data = (model / "packed_experts" / file).read_bytes()
        for place in places + list(range(size, stride, (stride - size) // 3 or 1)):
            runner.damages += 1
            link_tree(model, copy)
            offset = expert * stride + place
            replace(copy / "packed_experts" / file, flipped(data, offset))
            names = [file, f"layer {layer}", f"expert {expert}",
                     f"offset {offset if place >= size else expert * stride}"]
            runner.expect(f"{file} flipped at {offset}", "verify", copy, {1}, names)
            runner.expect(f"{file} flipped at {offset}", "inspect", copy, {0})
            if place < size:
                names[-1] = f"offset {offset}"
                runner.expect(f"{file} flipped at {offset}", "against", source, {1}, names, copy)
    weights = json.loads((model / "model_weights.json").read_text())["tensors"]
    data = (model / "model_weights.bin").read_bytes()
    for name in sorted(weights)[::12]:
        runner.damages += 1
        link_tree(model, copy)
        replace(copy / "model_weights.bin", flipped(data, weights[name]["offset"] + 1))
        runner.expect(f"model_weights.bin flipped in {name}", "verify", copy, {1},
                      ("model_weights.bin", "checksum"))
        runner.expect(f"model_weights.bin flipped in {name}", "logits", copy, {2},
                      ("model_weights.bin", "checksum"))
    for name in ("packed_experts/layer_00.bin", "packed_experts/layer_02.bin", "model_weights.bin"):
        data = (model / name).read_bytes()
        for what, content in ((("one byte short"), data[:-1]), ("one byte long", data + b"x"),
                              ("empty", b""), ("half", data[:len(data) // 2])):
            runner.damages += 1
            link_tree(model, copy)
            replace(copy / name, content)
            for command in ("inspect", "verify", "logits"):
                runner.expect(f"{name} {what}", command, copy, {2}, (Path(name).name,))
        runner.damages += 1
        link_tree(model, copy)
        (copy / name).unlink()
        for command in ("inspect", "verify", "logits"):
            runner.expect(f"{name} missing", command, copy, {2}, (Path(name).name,))


def companion_cases(runner, model):
    copy = runner.scratch / "damaged"
    text = (model / "tokenizer.json").read_bytes()
    document = json.loads(text)
    cases = [(f"cut at {n}", text[:n]) for n in (0, 1, len(text) // 2, len(text) - 2)]
    cases += [("a list", b"[]"), ("NUL", text[:90] + b"\0" + text[90:])]
    for path, wrong in ((("model",), 5), (("model", "type"), "Unigram"), (("model", "vocab"), []),
                        (("model", "vocab", "a"), -1), (("model", "vocab", "a"), "x"),
                        (("model", "merges"), {}), (("model", "merges", 0), 5),
                        (("model", "merges", 0), ["a"]), (("model", "vocab"), ...),
                        (("added_tokens",), 5), (("added_tokens", 0, "id"), -1),
                        (("added_tokens", 0, "content"), 5), (("pre_tokenizer",), 5),
                        (("normalizer",), {"type": "Lowercase"})):
        cases.append((f"{'.'.join(map(str, path))} = {wrong}", edited(document, path, wrong)))
    for what, content in cases:
        runner.damages += 1
        link_tree(model, copy)
        replace(copy / "tokenizer.json", content)
        for command in ("verify", "run"):
            runner.expect(f"tokenizer.json {what}", command, copy, {2}, ("tokenizer.json",))
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        runner.damages += 1
        link_tree(model, copy)
        replace(copy / name, b"{")
        runner.expect(f"{name} cut", "verify", copy, {2}, (name,))
    runner.damages += 1
    link_tree(model, copy)
    (copy / "moepack.unfinished").touch()
    for command in ("verify", "extract", "logits"):
        runner.expect("unfinished", command, copy, {2}, ("not finished",))
    runner.expect("unfinished", "inspect", copy, {0})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--every", type=int, default=1, help="of the runs, only every Nth")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-damage-") as scratch_name:
        scratch = Path(scratch_name)
        runner = Runner(args.program, scratch, args.every)
        source = scratch / "source"
        shutil.copytree(args.checkpoint, source, ignore=shutil.ignore_patterns("golden"))
        model = scratch / "model"
        code, _, err, _, _ = runner.run(False, "convert", source, "-o", model, "--page-size",
                                        "16384", "--quiet")
        if code != 0:
            print(err)
            return 1
        for command, path in (("verify", model), ("against", source), ("inspect", source),
                              ("index", source), ("extract", source), ("logits", model)):
            runner.expect("undamaged", command, path, {0}, (), model)
        checkpoint_cases(runner, source, model)
        config_cases(runner, source, model)
        manifest_cases(runner, model, "packed_experts/layout.json", 40)
        manifest_cases(runner, model, "model_weights.json", 40)
        checksum_cases(runner, model)
        data_cases(runner, source, model)
        companion_cases(runner, model)
    for failure in runner.failures[:30]:
        print("FAILED", failure)
    print(f"{runner.damages} damaged inputs, {runner.runs} runs"
          f"{f' (a sample, {runner.skipped} left out)' if runner.skipped else ''}, {len(runner.failures)} failures; "
          f"at most {runner.most_kib // 1024} MiB by a command that runs no model"
          f"{'' if runner.limited else ', not limited'}")
    return 1 if runner.failures or runner.damages < 200 else 0


if __name__ == "__main__":
    sys.exit(main())

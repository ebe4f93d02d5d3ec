#!/usr/bin/env python3
"""`moepack overlay`: matrices of a GGUF file over a model of the same weights.

A random checkpoint is written as GGUF (llama.cpp's names, transforms, order of V heads) and as
float32 twin, by a script that shares no code with the project. The model under the overlays has the
twin's weights with noise on every matrix that can be overlaid; with an overlay it must compute what
the checkpoint with the twin's matrices in that group computes. Then files of the flash-moe engines'
own kind, damage, refusals and interruptions.
"""
import json
import math
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
import gguf_files as gguf
import gguf_model
from cli_runner import CliRunner, conclude, listing, options, tree_hash

TOLERANCE = 3e-6  # relative, of all logits
GROUPS = {"embedding": ("embed_tokens",), "lm_head": ("lm_head",),
          "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
          "linear_attention": ("linear_attn.in_proj", "linear_attn.out_proj"),
          "shared_experts": ("mlp.shared_expert",), "experts": ("mlp.experts",)}
ALL = tuple(GROUPS)
RESIDENT = ALL[:-1]
# A type for which the columns of ssm_out are whole blocks of a head, and one for which they are not.
TYPES = {"blocks of a head": {"linear_attn.out_proj.weight": gguf_model.Q8_0,
                              "linear_attn.in_proj_z.weight": gguf_model.Q8_0},
         "blocks across heads": {}}


def group_of(name):
    return next((g for g, parts in GROUPS.items() if any(p in name for p in parts)), None)


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def with_noise(tensors, seed=9):
    source = random.Random(seed)
    noisy = {}
    for name, (dtype, shape, data) in tensors.items():
        if group_of(name) is not None:
            values = [v * (1 + source.gauss(0, 0.3)) for v in floats(data)]
            data = struct.pack(f"<{len(values)}f", *values)
        noisy[name] = (dtype, shape, data)
    return noisy


def in_mlx_form(tensors):
    """Norms as 1 + w, convolutions as [channels, taps, 1]."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if gguf_model.adds_one(name):
            data = struct.pack(f"<{len(data) // 4}f", *(gguf_model.f32(1 + v) for v in floats(data)))
        if "conv1d" in name:
            shape = [shape[0], shape[2], 1]
        out[name] = (dtype, shape, data)
    return out


def relative_error(found, wanted):
    if len(found) != len(wanted):
        return math.inf
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(found, wanted)) / sum(b * b for b in wanted))


class OverlayTest(CliRunner):
    def __init__(self, program, scratch, shim, every):
        super().__init__(program, scratch, shim)
        self.every = every
        self.vocabulary = gguf_model.byte_vocabulary(gguf_model.CONFIG["vocab_size"])
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([i * 7 % 256 for i in range(40)]))

    def logits_run(self, model, *more):
        self.output = self.scratch / "logits.f32"
        return self.run("logits", model, "--token-ids", self.ids, "-o", self.output, "--backend",
                        "reference", *more)

    def logits(self, model, *more):
        result = self.logits_run(model, *more)
        self.expect(result.returncode == 0, f"logits {more}: {result.stderr.strip()}")
        if not self.output.exists():
            return ()
        data = self.output.read_bytes()
        self.output.unlink()
        return floats(data)

    def write_gguf(self, name, model, tensors=None):
        path = self.scratch / name
        path.write_bytes(gguf.Writer().write(model.keys(self.vocabulary),
                                             model.gguf if tensors is None else tensors))
        return path

    def convert(self, name, config, tensors):
        source = self.scratch / (name + ".source")
        source.mkdir()
        (source / "config.json").write_text(json.dumps(config))
        files.write_tensors(source / files.SHARD, tensors)
        model = self.scratch / name
        self.succeeds("convert", source, "-o", model, "--quiet")
        if name != "base":
            shutil.rmtree(source)
        return model

    def overlay(self, model, file, groups=ALL, *more):
        return ("overlay", "--gguf", file, "--tensors", ",".join(groups), model, *more)

    def wanted(self, twin, noisy, groups, config):
        mixed = {n: twin.twin[n] if group_of(n) in groups else noisy[n] for n in noisy}
        model = self.convert("mixed", config, mixed)
        logits = self.logits(model)
        shutil.rmtree(model)
        return logits


def flags(groups):
    """The flags of a command that is to use these overlays."""
    residents = [g for g in groups if g != "experts"]
    return (*(("--overlay", ",".join(residents)) if residents else ()),
            *(("--pack", "Q3") if "experts" in groups else ("--pack", "packed_experts")))


def check_groups(test):
    """Each group alone and all together, on both forms of checkpoint, with both kinds of block."""
    for what, types in TYPES.items():
        model = gguf_model.Model(types=types)
        noisy = with_noise(model.twin)
        file = test.write_gguf("tiny.gguf", model)
        choices = [(g,) for g in ALL] + [RESIDENT, ALL]
        wanted = {c: test.wanted(model, noisy, c, model.config) for c in choices}
        plain = test.wanted(model, noisy, (), model.config)
        for form, tensors in (("transformers", noisy), ("MLX", in_mlx_form(noisy))):
            base = test.convert("base", model.config, tensors)
            report = json.loads(test.succeeds(*test.overlay(base, file), "--json",
                                              "--quiet").stdout)
            moved = not any("span several V heads" in n for n in report["notes"])
            test.expect(moved == (what == "blocks of a head"), f"{what}: {report['notes']}")
            for choice in choices:
                found = test.logits(base, *flags(choice))
                error = relative_error(found, wanted[choice])
                test.expect(error <= TOLERANCE, f"{what}, {form}, {choice}: off by {error}")
                test.expect(relative_error(found, plain) > 1e-3, f"{choice} changes nothing")
            test.expect(relative_error(test.logits(base, "--pack", "packed_experts"),
                                       plain) <= TOLERANCE, "overlays are taken unasked")
            check_verify(test, base, file)
            shutil.rmtree(base)
            shutil.rmtree(test.scratch / "base.source")


def check_verify(test, base, file):
    report = json.loads(test.succeeds("verify", base, "--against", file, "--json",
                                      "--quiet").stdout)
    parts = {c["part"] for c in report["compared"] if c["copied"]}
    wanted = {f"overlay {g}" for g in RESIDENT} | {"experts of packed_experts_Q3"}
    test.expect(parts == wanted and all(c["copied"] for c in report["compared"]),
                f"verify compared {parts}")
    # A model of the file itself, whose V heads stay in the file's order.
    itself = test.scratch / "itself"
    test.succeeds("convert", file, "-o", itself, "--quiet")
    test.succeeds(*test.overlay(itself, file, RESIDENT), "--quiet")
    test.succeeds("verify", itself, "--against", file, "--quiet")
    shutil.rmtree(itself)
    path = base / "gguf" / "linear_attention.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    result = test.run("verify", base, "--against", file, "--quiet")
    test.expect(result.returncode == 1 and "linear_attention.bin" in result.stdout and
                "offset 100" in result.stdout, f"a flipped bit: {result.stdout[:300]}")
    path.write_bytes(whole)


def check_engine_names(test, base):
    """What the flash-moe engines have a file for stands in it, everything else in the group's."""
    entries = {p.stem: json.loads(p.read_text())["entries"] for p in (base / "gguf").glob("*.json")}
    roles = {s: {(e.get("role"), e["tensor_type"]) for e in list_} for s, list_ in entries.items()}
    wanted = {"embedding_q8_0": {("embedding", "Q8_0")}, "lm_head": {("lm_head", "Q4_1")},
              "full_attn_q8_0": {("k", "Q8_0"), ("o", "Q8_0")},
              "attention": {("q", "Q4_1"), ("v", "F16")}, "attn_qkv_q8_0": {(None, "Q8_0")},
              "linear_q8_0": {("gate", "Q8_0"), ("out", "Q8_0")},
              "linear_attention": {("alpha", "BF16"), ("beta", "Q8_0")},
              "shared_q8_0": {("gate", "Q8_0")},
              "shared_experts": {("up", "Q4_0"), ("down", "Q4_1"), ("expert_gate", "F32")}}
    test.expect(roles == wanted, f"files and roles: {roles}")
    entry = entries["full_attn_q8_0"][0]
    test.expect(entry["shape"] == [64, 32] and entry["layer"] == 3 and
                entry["size"] == 32 * 64 // 32 * 34, f"entry {entry}")


def check_engine_files(test, base):
    """Files as the engines' own scripts leave them: entries alone; embedding and head without."""
    directory = base / "gguf"
    wanted = test.logits(base, *flags(RESIDENT))
    kept = {p: p.read_text() for p in directory.glob("*_q8_0.json")}
    for path, text in kept.items():
        entries = json.loads(text)["entries"]
        for entry in entries:
            entry.pop("v_heads", None)
            entry["note"] = "extra keys are tolerated"
        path.write_text(json.dumps({"entries": entries}))
    (directory / "embedding_q8_0.json").unlink()
    test.expect(test.logits(base, *flags(RESIDENT)) == wanted, "engines' own files: other logits")
    result = test.run("verify", base, "--quiet")
    test.expect(result.returncode == 0, f"verify of engines' own files: {result.stderr}")
    for path, text in kept.items():
        path.write_text(text)


def bad_manifests(doc):
    """(what, changed document)."""
    def changed(**members):
        return {**doc, **members}

    def entry(**members):
        first = {k: v for k, v in {**doc["entries"][0], **members}.items() if v is not None}
        return changed(entries=[first, *doc["entries"][1:]])
    yield from ((f"{k} = {v}", changed(**{k: v})) for k, v in (
        ("format_version", 2), ("entries", []), ("entries", {}), ("entries", [7]),
        ("data_size", 5), ("data_size", -1), ("checksum", "0" * 16), ("checksum", 7), ("source", 3),
        ("entries", doc["entries"] + doc["entries"][:1])))
    yield from ((f"entry {k} = {v}", entry(**{k: v})) for k, v in (
        ("layer", 5), ("layer", -1), ("layer", None), ("layer", 1 << 40), ("role", "x"),
        ("role", None), ("offset", 1), ("offset", 1 << 60), ("offset", None), ("size", 0),
        ("size", 1 << 63), ("shape", [0, 32]), ("shape", [1 << 62, 1 << 62]), ("shape", [64]),
        ("shape", [64, 33]), ("shape", [1 << 32, 1 << 32]), ("tensor_type", "Q9_X"),
        ("tensor_type", "Q8_1"), ("tensor_type", "I32"), ("tensor_type", None)))
    # Sums that wrap around, in our form and in the engines'.
    wrap = {"layer": 3, "role": "q", "offset": 1 << 63, "size": 1 << 63,
            "shape": [1 << 30, 1 << 32], "tensor_type": "F16"}
    far = {**doc["entries"][0], "offset": 1 << 61}
    yield "sizes that wrap around", changed(entries=[*doc["entries"], wrap])
    yield "sizes that wrap around, engines' form", {"entries": [*doc["entries"], wrap]}
    yield "offsets behind the file, engines' form", {"entries": [far, *doc["entries"][1:]]}


def check_damage(test, base):
    directory = base / "gguf"
    path = directory / "full_attn_q8_0.json"
    text = path.read_text()

    def refused(what, *names):
        test.is_error(what, test.logits_run(base, "--overlay", "attention"), names)
    for what, doc in bad_manifests(json.loads(text)):
        path.write_text(json.dumps(doc))
        refused(what, "full_attn_q8_0")
    for cut in range(0, len(text) - 1, max(1, len(text) // 40)):
        path.write_text(text[:cut])
        refused(f"cut at {cut}", "full_attn_q8_0.json")
    path.unlink()
    refused("no manifest", "full_attn_q8_0.json", "missing")
    path.write_text(text)
    data = directory / "full_attn_q8_0.bin"
    whole = data.read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        data.write_bytes(whole[:cut])
        refused(f"data cut at {cut}", "full_attn_q8_0.bin")
    data.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused("a flipped bit", "full_attn_q8_0.bin", "checksum")
    data.unlink()
    refused("no data", "full_attn_q8_0.bin")
    data.write_bytes(whole)
    doc = json.loads((directory / "attention.json").read_text())
    doc["entries"][0]["role"] = "k"
    kept = (directory / "attention.json").read_text()
    (directory / "attention.json").write_text(json.dumps(doc))
    refused("a matrix in two files", "k_proj")
    (directory / "attention.json").write_text(kept)
    test.is_error("an unknown group", test.logits_run(base, "--overlay", "experts"), ("experts",))
    shutil.rmtree(directory)
    test.is_error("all of none", test.logits_run(base, "--overlay", "all"), ("base", "no overlays"))
    test.is_error("no overlays", test.logits_run(base, "--overlay", "lm_head"),
                  ("lm_head", "moepack overlay"))


def check_refusals(test, base, model):
    """Refusals exit with 2 and one line, and leave nothing behind."""
    file = test.write_gguf("tiny.gguf", model)

    def refused(what, path, names, groups=ALL, *more):
        test.refuses(what, names, *test.overlay(base, path, groups, *more))
    other = test.write_gguf("other.gguf", gguf_model.Model(weights=2))
    for groups in (ALL, *((g,) for g in ALL)):
        refused(f"other weights, {groups}", other, ("other.gguf", "another model"), groups)
    for key, value in (("num_experts", 6), ("vocab_size", 352), ("num_hidden_layers", 4),
                       ("moe_intermediate_size", 64)):
        config = {**model.config, key: value}
        config["layer_types"] = config["layer_types"][:config["num_hidden_layers"]]
        changed = gguf_model.Model(config)
        path = test.scratch / "changed.gguf"
        path.write_bytes(gguf.Writer().write(
            changed.keys(gguf_model.byte_vocabulary(config["vocab_size"])), changed.gguf))
        refused(f"{key} = {value}", path, ("changed.gguf", str(value), "another model"))
    for name in ("blk.3.attn_q.weight", "blk.1.ffn_down_exps.weight", "token_embd.weight"):
        path = test.write_gguf("missing.gguf", model, [t for t in model.gguf if t.name != name])
        refused(f"without {name}", path, ("missing.gguf", name))
    tied = test.write_gguf("tied.gguf", model, [t for t in model.gguf if t.name != "output.weight"])
    refused("a tied head", tied, ("tied.gguf", "lm_head"), ("lm_head",))
    short = [gguf.Tensor(t.name, [64, 31] if t.name == "blk.3.attn_k.weight" else t.ne, t.type,
                         t.data[:31 * 68] if t.name == "blk.3.attn_k.weight" else t.data)
             for t in model.gguf]
    refused("a wrong shape", test.write_gguf("short.gguf", model, short),
            ("short.gguf", "blk.3.attn_k.weight"))
    refused("a checkpoint", test.scratch / "base", ("base",))
    refused("no file", test.scratch / "none.gguf", ("none.gguf",))
    refused("an unknown group", file, ("router",), ("router",))
    refused("a strange name", file, ("a/b",), ALL, "--name", "a/b")
    refused("a name with dots", file, ("letters, digits",), ALL, "--name", "..")
    refused("the model's own pack", file, ("packed_experts: ", "already holds a pack"), ALL, "--name",
            "packed_experts")
    test.refuses("no model", ("none",), *test.overlay(test.scratch / "none", file))


def check_replacing(test, base, model):
    file = test.write_gguf("tiny.gguf", model)
    test.succeeds(*test.overlay(base, file), "--quiet")
    before = tree_hash(base)
    for groups in (ALL, RESIDENT, ("attention",)):
        report = json.loads(test.succeeds(*test.overlay(base, file, groups), "--json",
                                          "--quiet").stdout)
        test.expect(all(f["kept"] for f in report["overlays"]), f"written again: {report}")
        test.expect(report.get("pack_kept", True), f"the pack was written again: {report}")
    test.expect(tree_hash(base) == before, "a second run changed something")
    damaged = base / "gguf" / "embedding_q8_0.bin"
    whole = damaged.read_bytes()
    damaged.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    test.succeeds(*test.overlay(base, file), "--quiet")
    test.expect(tree_hash(base) == before, "a damaged overlay is not mended by the same call")
    again = test.write_gguf("again.gguf", gguf_model.Model(types={"self_attn.k_proj.weight": 30}))
    test.refuses("overlays from elsewhere", ("full_attn_q8_0.bin", "--replace"),
                 *test.overlay(base, again, ("attention",)))
    test.succeeds(*test.overlay(base, again, ("attention",)), "--quiet", "--replace")
    result = test.run("verify", base, "--against", again, "--quiet")
    test.expect(result.returncode == 0, f"verify after --replace: {result.stdout[:300]}")
    dry = test.succeeds(*test.overlay(base, file, ("attention",)), "--dry-run", "--replace")
    test.expect("nothing was written" in dry.stderr, "dry run")


def check_interruptions(test, base, model):
    """Killed after a file operation that shows, or failing at it, a run is completed by the next."""
    if test.shim is None:
        return
    file = test.write_gguf("tiny.gguf", model)
    command = (*test.overlay(base, file), "--quiet", "-t", "1")
    kept = test.scratch / "kept"
    shutil.copytree(base, kept)
    start = tree_hash(base)

    def again():
        shutil.rmtree(base)
        shutil.copytree(kept, base)
    test.succeeds(*command)
    wanted = tree_hash(base)
    again()
    counts = test.scratch / "counts"
    test.run(*command, fault=f"count:{counts}")
    calls = test.counted(counts)
    again()
    moments = [(op, n) for op in ("sync", "rename", "unlink", "write")
               for n in range(1, calls[op] + 1)][::test.every]
    for op, n in moments:
        test.run(*command, fault=f"kill-after:{op}:{n}")
        # What is there can be read, or is said to be missing; nothing is half there.
        result = test.logits_run(base, *flags(("attention",)))
        test.expect(result.returncode in (0, 2), f"killed after {op} {n}: {result.returncode}")
        result = test.run(*command)
        test.expect(result.returncode == 0 and tree_hash(base) == wanted,
                    f"killed after {op} {n}: {result.stderr.strip()[:300]} {listing(base)}")
        again()
        if op == "unlink":
            continue  # what cannot be removed stays
        error = "ENOSPC" if op == "write" else "EIO"
        result = test.run(*command, fault=f"{error}:{op}:{n}")
        if result.returncode == 0:  # what failed did not matter
            test.expect(tree_hash(base) == wanted, f"{error} at {op} {n}: other files")
        else:
            test.is_error(f"{error} at {op} {n}", result, ())
            test.run(*command)
            test.expect(tree_hash(base) == wanted, f"{error} at {op} {n}: not completed")
        again()
    test.expect(tree_hash(base) == start, "the copy is not the model")


def check_same_order(test, model):
    """A model from a GGUF file has its order of V heads already: nothing is moved."""
    file = test.write_gguf("tiny.gguf", model)
    base = test.scratch / "tiled"
    test.succeeds("convert", file, "-o", base, "--quiet")
    test.succeeds(*test.overlay(base, file), "--quiet")
    test.expect(test.logits(base, *flags(ALL)) == test.logits(base, "--pack", "packed_experts"),
                "its own overlays change a model")
    shutil.rmtree(base)


def check_tied(test, model):
    """A head that is the embedding stays it, whatever the checkpoint holds, until one is overlaid."""
    config = {**model.config, "tie_word_embeddings": True}
    base = test.convert("tied", config, model.twin)
    without = test.convert("without", config,
                           {n: t for n, t in model.twin.items() if n != "lm_head.weight"})
    test.expect(test.logits(base) == test.logits(without), "a tied head is not the embedding")
    tokenized = test.scratch / "exported.gguf"
    test.succeeds("convert", test.scratch / "tiny.gguf", "-o", test.scratch / "names", "--quiet")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(test.scratch / "names" / name, base / name)
    test.succeeds("export", "--gguf", base, "-o", tokenized, "--quiet")
    test.succeeds("convert", tokenized, "-o", test.scratch / "tied again", "--quiet")
    error = relative_error(test.logits(test.scratch / "tied again"), test.logits(without))
    test.expect(error <= TOLERANCE, f"a tied head, exported: off by {error}")
    test.succeeds(*test.overlay(base, test.scratch / "tiny.gguf", ("lm_head",)), "--quiet")
    error = relative_error(test.logits(base, "--overlay", "lm_head"),
                           test.wanted(model, model.twin, (), model.config))
    test.expect(error <= TOLERANCE, f"an overlaid head over a tied one: off by {error}")


def check_mixed_verify(test, base, file, source):
    """The model's own source stays comparable without the pack that was made from it."""
    shutil.move(base / "packed_experts", test.scratch / "own pack")
    for against in (source, file):
        result = test.run("verify", base, "--against", against, "--quiet")
        test.expect(result.returncode == 0, f"without its own pack: {result.stdout[:300]}")
    report = json.loads(test.succeeds("verify", base, "--against", source, "--json",
                                      "--quiet").stdout)
    test.expect({c["part"] for c in report["compared"]} == {"residents"}, f"{report['compared']}")
    shutil.move(test.scratch / "own pack", base / "packed_experts")
    # Packs quantized from the file, or from its experts here, say nothing of the residents.
    for name, origin in (("of_file", file), ("of_pack", "Q3")):
        test.succeeds("quantize", base, "--method", "rtn", "--bits", "4", "--group-size", "32",
                      "--from", origin, "--name", name, "--quiet")
    for against, parts in ((file, {"experts of packed_experts_of_file",
                                   "experts of packed_experts_of_pack"}),
                           (source, {"residents", "experts of packed_experts"})):
        result = test.run("verify", base, "--against", against, "--json", "--quiet")
        report = json.loads(result.stdout)
        compared = {c["part"] for c in report["compared"]}
        test.expect(result.returncode == 0 and compared >= parts and
                    ("residents" in compared) == (against == source),
                    f"with packs of the file: {report['differences'][:2]} {compared}")
    for name in ("of_file", "of_pack"):
        shutil.rmtree(base / f"packed_experts_{name}")


def check_two_at_once(test, base, file):
    shutil.rmtree(base / "gguf", ignore_errors=True)
    for _ in range(5):
        runs = [subprocess.Popen([test.program, *map(str, test.overlay(base, file, RESIDENT)),
                                  "--quiet", "--replace"], stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        errors = [run.communicate()[1] for run in runs]
        codes = sorted(run.returncode for run in runs)
        test.expect(codes in ([0, 0], [0, 2]) and
                    all(not e or "another command" in e for e in errors), f"{codes} {errors}")
    result = test.run("verify", base, "--against", file, "--quiet")
    test.expect(result.returncode == 0, f"after two at once: {result.stdout[:300]}")


def check_qwen3_next(test):
    config = {**gguf_model.CONFIG, "model_type": "qwen3_next", "full_attention_interval": 4,
              "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    model = gguf_model.Model(config)
    noisy = with_noise(model.twin)
    base = test.convert("next", config, noisy)
    test.succeeds(*test.overlay(base, test.write_gguf("next.gguf", model)), "--quiet")
    error = relative_error(test.logits(base, *flags(ALL)), test.wanted(model, noisy, ALL, config))
    test.expect(error <= TOLERANCE, f"qwen3next: off by {error}")


def main():
    args = options(__doc__, shim=True, every=True).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-overlay-") as scratch_name:
        test = OverlayTest(args.program, Path(scratch_name), args.shim, args.every)
        check_groups(test)
        model = gguf_model.Model(types=TYPES["blocks of a head"])
        base = test.convert("base", model.config, with_noise(model.twin))
        check_refusals(test, base, model)
        check_interruptions(test, base, model)
        check_replacing(test, base, model)
        shutil.rmtree(base / "gguf")
        test.succeeds(*test.overlay(base, test.scratch / "tiny.gguf", RESIDENT), "--quiet")
        check_engine_names(test, base)
        check_engine_files(test, base)
        check_damage(test, base)
        check_same_order(test, model)
        check_tied(test, model)
        file = test.scratch / "tiny.gguf"
        test.succeeds(*test.overlay(base, file), "--quiet")
        check_mixed_verify(test, base, file, test.scratch / "base.source")
        check_two_at_once(test, base, file)
        check_qwen3_next(test)
    return conclude(test.failures, f"{test.runs} runs, {test.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

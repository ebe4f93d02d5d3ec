#!/usr/bin/env python3
"""`moepack convert model.gguf`: the model must compute what its float32 twin computes.

A small random checkpoint is written twice by a script that shares no code with the project: as GGUF
with llama.cpp's names, transforms and blocks, and as float32 safetensors of the decoded values. One
file, three parts and a big-endian file all give the twin's logits. Then models that must be
refused: with exit code 2, one line and nothing left behind.
"""
import argparse
import json
import math
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
import gguf_files as gguf
import gguf_model
from damage_test import Runner

TOLERANCE = 3e-6  # relative, of all logits: the columns of ssm_out are summed in another order


class Tester(Runner):
    def __init__(self, program, scratch, every):
        super().__init__(program, scratch, every)
        self.model = gguf_model.Model()
        self.config = self.model.config
        self.vocabulary = gguf_model.byte_vocabulary(self.config["vocab_size"])
        self.write_twin("twin", self.model)
        self.ids.write_text(json.dumps([i * 7 % 256 for i in range(40)]))

    def write_twin(self, name, model):
        path = self.scratch / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps(model.config))
        files.write_tensors(path / files.SHARD, model.twin)

    def succeeds(self, *args):
        code, out, err, _, _ = self.run(False, *args)
        self.check(code == 0, f"{args}: exit code {code}: {err}")
        return out

    def arguments(self, command, path, against, output):
        if command == "reclaim":
            return ("convert", path, "-o", output, "--quiet", "--reclaim")
        return super().arguments(command, path, against, output)

    def logits(self, model, backend="reference"):
        output = self.scratch / "logits.f32"
        self.succeeds("logits", model, "--token-ids", self.ids, "-o", output, "--backend", backend)
        if not output.exists():
            return []
        data = output.read_bytes()
        output.unlink()
        return struct.unpack(f"<{len(data) // 4}f", data)

    def write(self, name, keys=None, tensors=None, **how):
        path = self.scratch / name
        path.write_bytes(gguf.Writer(**how).write(
            self.model.keys(self.vocabulary) if keys is None else keys,
            self.model.gguf if tensors is None else tensors))
        return path


def relative_error(found, wanted):
    if len(found) != len(wanted):
        return math.inf
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(found, wanted)))
    return difference / math.sqrt(sum(b * b for b in wanted))


def write_parts(test):
    folder = test.scratch / "parts"
    folder.mkdir(exist_ok=True)
    tensors = test.model.gguf
    chunks = ([], tensors[:20], tensors[20:])
    for number, chunk in enumerate(chunks):
        keys = test.model.keys(test.vocabulary) if number == 0 else []
        (folder / gguf.part_name("tiny", number, 3)).write_bytes(
            gguf.Writer().write(keys + gguf.split_keys(number, 3, len(tensors)), chunk))
    return folder / gguf.part_name("tiny", 1, 3)


def with_prediction_block(test):
    """One more block, which predicts a second token and is left out."""
    layer = test.config["num_hidden_layers"]
    copied = [gguf.Tensor(t.name.replace("blk.3.", f"blk.{layer}."), t.ne, t.type, t.data)
              for t in test.model.gguf if t.name.startswith("blk.3.")]
    more = [gguf.Tensor(f"blk.{layer}.nextn.eh_proj.weight", [128, 64], 0, bytes(128 * 64 * 4))]
    return test.write("mtp.gguf", test.model.keys(test.vocabulary, extra_blocks=1),
                      test.model.gguf + copied + more)


def check_prediction_kept(test, source):
    """The block that predicts, in ggml's types, byte for byte."""
    model = test.scratch / "kept"
    report = json.loads(test.succeeds("convert", source, "-o", model, "--keep-prediction", "--json",
                                      "--quiet") or "{}")
    manifest = json.loads((model / "prediction.json").read_text())
    data = (model / "prediction.bin").read_bytes()
    wanted = {t.name.replace("blk.3.", f"blk.{test.config['num_hidden_layers']}."): bytes(t.data)
              for t in test.model.gguf if t.name.startswith("blk.3.")}
    found = {name: data[e["offset"]:e["offset"] + e["size"]]
             for name, e in manifest["tensors"].items() if "nextn" not in name}
    test.check(found == wanted and manifest["container"] == "gguf" and
               report["skipped_tensors"] == [], f"kept {sorted(found)}")
    test.succeeds("verify", model, "--against", source, "--quiet")
    name = next(name for name, e in manifest["tensors"].items() if e["type"] not in ("F32", "F16"))
    for flags in ((), ("--f32",)):
        both = [test.run(False, "extract", path, name, *flags, "-o", test.scratch / f"out{i}")[0]
                for i, path in enumerate((model, source))]
        test.check(both == [0, 0] and (test.scratch / "out0").read_bytes() ==
                   (test.scratch / "out1").read_bytes(), f"extract {name} {flags}: {both}")
    shutil.rmtree(model)


def check_same_logits(test):
    test.succeeds("convert", test.scratch / "twin", "-o", test.scratch / "twin.model")
    wanted = test.logits(test.scratch / "twin.model")
    test.check(len(wanted) == 40 * 320, f"{len(wanted)} logits")
    sources = {"one file": test.write("tiny.gguf"),
               "version 2": test.write("tiny2.gguf", version=2, alignment=64, keys=[
                   *test.model.keys(test.vocabulary), ("general.alignment", gguf.U32, 64)]),
               "three parts": write_parts(test),
               "big-endian": test.write("big.gguf", big_endian=True, tensors=[
                   gguf_model.big_endian(t) for t in test.model.gguf]),
               "a block that predicts": with_prediction_block(test)}
    for what, source in sources.items():
        model = test.scratch / "converted"
        report = json.loads(test.succeeds("convert", source, "-o", model, "--json", "--quiet") or "{}")
        if not report:
            continue
        found = test.logits(model)
        error = relative_error(found, wanted)
        test.check(error <= TOLERANCE, f"{what}: logits are off by {error}")
        test.check(("blk.5.ffn_down_exps.weight" in report["skipped_tensors"]) ==
                   ("predicts" in what), f"{what}: skipped {report['skipped_tensors']}")
        if what == "one file":
            check_directory(test, model, source, wanted)
        if "predicts" in what:
            check_prediction_kept(test, source)
        if what != "big-endian":
            test.succeeds("verify", model, "--against", source, "--quiet")
        else:
            code, _, err, _, _ = test.run(False, "verify", model, "--against", source)
            test.check(code == 2 and "big-endian" in err, f"{what}: verify: {code} {err}")
        shutil.rmtree(model)


def check_directory(test, model, source, wanted):
    """The directory says what it holds, and the same bytes come out with any number of threads."""
    residents = json.loads((model / "model_weights.json").read_text())
    conventions = residents.get("conventions", {})
    test.check("tiled" in str(conventions) and "neg_exp" in str(conventions),
               f"conventions {conventions}")
    config = json.loads((model / "config.json").read_text())
    for key in ("hidden_size", "num_hidden_layers", "num_experts", "layer_types", "rms_norm_eps",
                "head_dim", "vocab_size", "max_position_embeddings", "linear_num_key_heads",
                "linear_value_head_dim", "moe_intermediate_size", "eos_token_id"):
        test.check(config[key] == test.config[key], f"config.json: {key} is {config[key]}")
    found = test.logits(model, "cpu")
    error = relative_error(found, wanted)
    test.check(error <= 3e-6, f"cpu backend: logits are off by {error}")
    again = test.scratch / "again"
    test.succeeds("convert", source, "-o", again, "-t", "7", "--quiet")
    first = {p.relative_to(model): p.read_bytes() for p in model.rglob("*") if p.is_file()}
    second = {p.relative_to(again): p.read_bytes() for p in again.rglob("*") if p.is_file()}
    test.check(first == second, "seven threads write other bytes")
    shutil.rmtree(again)


def check_qwen3_next(test):
    """Fused projections of GatedDeltaNet, in safetensors and in both forms of GGUF files."""
    config = dict(gguf_model.CONFIG, model_type="qwen3_next", linear_num_value_heads=6,
                  linear_num_key_heads=3, linear_key_head_dim=16, linear_value_head_dim=128,
                  norm_topk_prob=True)
    for legacy in (False, True):
        model = gguf_model.Model(config, legacy=legacy)
        name = f"next.{legacy}"
        test.write_twin(name, model)
        path = test.write(name + ".gguf", model.keys(test.vocabulary), model.gguf)
        for source, out in ((test.scratch / name, "a"), (path, "b")):
            test.succeeds("convert", source, "-o", test.scratch / out, "--quiet")
            test.succeeds("verify", test.scratch / out, "--against", source, "--quiet")
        error = relative_error(test.logits(test.scratch / "b"), test.logits(test.scratch / "a"))
        test.check(error <= TOLERANCE, f"{name}: logits are off by {error}")
        for fused in ("ssm_ba", "ssm_in"):
            less = [t for t in model.gguf if fused not in t.name]
            if len(less) == len(model.gguf):
                continue
            test.write("bad.gguf", model.keys(test.vocabulary), less)
            test.expect(f"{name} without {fused}", "convert", test.scratch / "bad.gguf", {2}, (
                "bad.gguf", "ssm_ba" if fused == "ssm_ba" else "attn_qkv"))
        both = model.gguf + [gguf.Tensor("blk.0.attn_qkv.weight" if legacy else "blk.0.ssm_in.weight",
                                         [64, 864 if legacy else 1632], 0,
                                         bytes(64 * 4 * (864 if legacy else 1632)))]
        test.write("bad.gguf", model.keys(test.vocabulary), both)
        test.expect(f"{name} with both", "convert", test.scratch / "bad.gguf", {2}, ("bad.gguf",))
        for out in ("a", "b"):
            shutil.rmtree(test.scratch / out)


def check_rounding(test):
    """To MLX's affine codes: what the same rounding makes of the twin, experts byte for byte."""
    rounding = ["--expert-format", "q4", "--group-size", "32", "--quiet"]
    for source, model in (("tiny.gguf", "a"), ("twin", "b")):
        test.succeeds("convert", test.scratch / source, "-o", test.scratch / model, *rounding)
    output = test.scratch / "part"
    for layer, kinds in enumerate(gguf_model.EXPERTS):
        for projection, kind in zip(("gate_proj", "up_proj", "down_proj"), kinds):
            if kind == gguf_model.F16:
                continue  # scales follow the source's type, and the twin has none of float16
            for part in ("weight", "scales", "biases"):
                name = f"model.layers.{layer}.mlp.experts.2.{projection}.{part}"
                found = []
                for model in ("a", "b"):
                    test.succeeds("extract", test.scratch / model, name, "-o", output)
                    found.append(output.read_bytes())
                    output.unlink()
                test.check(found[0] == found[1] and found[0], f"{name}: rounded differently")
    error = relative_error(test.logits(test.scratch / "a"), test.logits(test.scratch / "b"))
    test.check(error < 0.05, f"rounded: logits are off by {error}")
    test.succeeds("verify", test.scratch / "a", "--against", test.scratch / "tiny.gguf", "--quiet")
    for model in ("a", "b"):
        shutil.rmtree(test.scratch / model)


# ---- refused ----

def without(keys, name):
    return [k for k in keys if k[0] != name]


def changed(keys, name, value, kind=None):
    found = [k for k in keys if k[0] == name]
    assert found, name
    return [(n, kind or k, value) if n == name else (n, k, v) for n, k, v in keys]


# Values that are possible, but not with these tensors.
BY_TENSOR = {("block_count", 4), ("block_count", 6), ("embedding_length", 32),
             ("attention.head_count", 3), ("attention.head_count_kv", 2),
             ("expert_count", 3), ("expert_count", 5), ("expert_feed_forward_length", 95),
             ("expert_shared_feed_forward_length", 31), ("ssm.conv_kernel", 3),
             ("ssm.state_size", 33), ("full_attention_interval", 3)}


def bad_keys(keys):
    """(what, keys, names in the message)"""
    a = "qwen35moe."
    for name, _, _ in keys:
        # Those with a default, and those that only other programs need.
        if name in (a + "attention.value_length", a + "rope.dimension_sections", "general.name",
                    a + "expert_shared_feed_forward_length", a + "full_attention_interval",
                    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.token_type"):
            continue
        yield f"without {name}", without(keys, name), (name,)
    for name, values in {
            "block_count": [0, 4, 6, 1000, 0xFFFFFFFF], "embedding_length": [0, 32, 0xFFFFFFFF],
            "attention.head_count": [0, 3, 0xFFFFFFFF], "attention.head_count_kv": [0, 2],
            "attention.key_length": [0, 16, 31, 0xFFFFFFFF], "attention.value_length": [16],
            "rope.dimension_count": [0, 7, 33], "expert_count": [0, 3, 5, 0xFFFFFFFF],
            "expert_used_count": [0, 5, 0xFFFFFFFF], "expert_feed_forward_length": [0, 95, 1 << 31],
            "expert_shared_feed_forward_length": [31], "context_length": [0, 0xFFFFFFFF],
            "ssm.conv_kernel": [0, 3, 0xFFFFFFFF], "ssm.state_size": [0, 33, 0xFFFFFFFF],
            "ssm.group_count": [0, 3, 0xFFFFFFFF], "ssm.time_step_rank": [0, 3, 5, 0xFFFFFFFF],
            "ssm.inner_size": [0, 255, 0xFFFFFFFF], "full_attention_interval": [0, 3]}.items():
        for value in values:
            yield f"{name} = {value}", changed(keys, a + name, value), (
                name if (name, value) not in BY_TENSOR else "tensor ",)
    yield "a list of counts", changed(keys, a + "attention.head_count", [2, 3],
                                      (gguf.ARRAY, gguf.U32)), ("attention.head_count",)
    yield "a negative count", changed(keys, a + "attention.head_count", -2, gguf.I32), (
        "attention.head_count",)
    yield "text for a number", changed(keys, a + "expert_count", "4", gguf.STRING), (
        "expert_count",)
    yield "an endless list", changed(keys, a + "attention.head_count", [1] * 70000,
                                     (gguf.ARRAY, gguf.U8)), ("attention.head_count",)
    yield "another architecture", changed(keys, "general.architecture", "gpt-oss"), ("gpt-oss",)
    for name, values in (("rope.freq_base", (math.inf, 0.0, 1.0, 1e300)),
                         ("attention.layer_norm_rms_epsilon", (0.0, 1.0, math.nan, 1e300))):
        for value in values:
            yield f"{name} {value}", changed(keys, a + name, value, gguf.F64), (a + name,)
    for sections in ([-5, 1, 1], [1] * 5, [1, 99]):
        yield f"rope sections {sections}", changed(keys, a + "rope.dimension_sections", sections), (
            "rope.dimension_sections",)
    more = dict((k[0], k[2]) for k in keys)["tokenizer.ggml.tokens"] + ["one", "more"]
    yield "more tokens than rows", changed(keys, "tokenizer.ggml.tokens", more), (
        "tokenizer.ggml.tokens",)
    yield "an end beyond", changed(keys, "tokenizer.ggml.eos_token_id", 320), ()
    for name, kind, value in ((a + "rope.scaling.type", gguf.STRING, "yarn"),
                              (a + "rope.scaling.factor", gguf.F32, 4.0),
                              (a + "rope.scale_linear", gguf.F32, 0.5),
                              (a + "expert_gating_func", gguf.U32, 2),
                              (a + "expert_group_count", gguf.U32, 8),
                              (a + "leading_dense_block_count", gguf.U32, 1),
                              (a + "expert_weights_scale", gguf.F32, 2.5),
                              (a + "nextn_predict_layers", gguf.U32, 5),
                              (a + "nextn_predict_layers", gguf.U32, 1),
                              (a + "attention.recurrent_layers", (gguf.ARRAY, gguf.BOOL), [1]),
                              (a + "attention.recurrent_layers", (gguf.ARRAY, gguf.BOOL),
                               [1, 1, 1, 1, 1])):
        names = () if "recurrent" in name or "nextn" in name else (name.removeprefix(a),)
        yield f"{name} = {value}", keys + [(name, kind, value)], names


def bad_tensors(tensors):
    for at, tensor in enumerate(tensors):
        rest = tensors[:at] + tensors[at + 1:]
        if tensor.name != "output.weight":  # then the embeddings are the output
            yield f"without {tensor.name}", rest, (tensor.name.replace("gate_up", "gate"),)
        if tensor.type == gguf_model.F32 and tensor.name.startswith("blk.0."):
            for kind, name in ((26, "I32"), (28, "F64")):
                data = tensor.data * (2 if kind == 28 else 1)
                yield f"{tensor.name} as {name}", rest + [
                    gguf.Tensor(tensor.name, tensor.ne, kind, data)], (tensor.name, name)
        if len(tensor.ne) > 1 and tensor.ne[0] != tensor.ne[1] and tensor.name.startswith(
                ("blk.1.", "out", "tok")) and tensor.type == gguf_model.F32:
            yield f"{tensor.name} turned", rest + [
                gguf.Tensor(tensor.name, [tensor.ne[1], tensor.ne[0], *tensor.ne[2:]], tensor.type,
                            tensor.data)], (tensor.name,)
    by_name = {t.name: t for t in tensors}
    gate = by_name["blk.1.ffn_gate_exps.weight"]
    yield "gate twice", tensors + [gguf.Tensor("blk.1.ffn_gate_up_exps.weight",
                                               [64, 192, 4], 0, bytes(64 * 192 * 4 * 4))], (
        "blk.1.ffn_",)
    yield "an unknown tensor", tensors + [gguf.Tensor("blk.1.attn_sinks.weight", [2], 0, bytes(8))], (
        "attn_sinks",)
    yield "a scale of experts", tensors + [gguf.Tensor("blk.1.ffn_gate_exps.scale", [4], 0,
                                                       bytes(16))], ("ffn_gate_exps.scale",)
    yield "attention in a linear layer", tensors + [
        gguf.Tensor("blk.0.attn_q_norm.weight", [32], 0, bytes(128))], ("blk.0.attn_q_norm",)
    yield "one expert less", [t for t in tensors if t is not gate] + [
        gguf.Tensor(gate.name, [*gate.ne[:2], 3], gate.type, gate.data[:len(gate.data) // 4 * 3])], (
        gate.name,)


def check_exhausting(test):
    """Small files that claim much: refused before memory is taken for it."""
    config = dict(gguf_model.CONFIG, vocab_size=2, hidden_size=1,
                  moe_intermediate_size=1, shared_expert_intermediate_size=1, num_experts=65536,
                  num_hidden_layers=3, layer_types=["linear_attention"] * 3, head_dim=8,
                  num_attention_heads=1, linear_num_key_heads=1, linear_num_value_heads=1,
                  linear_key_head_dim=1, linear_value_head_dim=1)
    keys = without(gguf_model.Model.keys_of(config, [("a", 1), ("b", 1)]),
                   "tokenizer.ggml.eos_token_id")
    tensors = [gguf.Tensor(f"blk.{layer}.ffn_{matrix}_exps.weight", [1, 1, 65536], 0,
                           bytes(4 * 65536)) for layer in range(3) for matrix in
               ("gate", "up", "down")]
    tensors.append(gguf.Tensor("token_embd.weight", [1, 2], 0, bytes(8)))
    path = test.write("bad.gguf", keys, tensors)
    test.damages += 1
    test.expect("200,000 experts of one weight", "convert", path, {2}, ("bad.gguf", "experts"))
    more = [gguf.Tensor(f"blk.5.nextn.{i}", [1], 0, bytes(4)) for i in range(3)]
    more.append(gguf.Tensor("blk.5.nextn.eh_proj.weight", [128, 64], 0, bytes(128 * 64 * 4)))
    test.write("bad.gguf", test.model.keys(test.vocabulary, extra_blocks=1), test.model.gguf + more)
    test.damages += 1
    test.expect("unknown tensors beside a block that predicts", "convert", path, {2},
                ("bad.gguf", "blk.5.nextn.0"))
    # The sanitizers keep freed memory and shadows of everything.
    most = (400 if test.sanitized else 80) * 1024
    test.check(test.most_kib <= most, f"{test.most_kib} KiB")


def check_refusals(test):
    keys = test.model.keys(test.vocabulary)
    path = test.scratch / "bad.gguf"
    test.write("bad.gguf")
    test.expect("undamaged", "reclaim", path, {2}, ("bad.gguf", "--reclaim"))
    for what, bad, names in bad_keys(keys):
        test.damages += 1
        test.write("bad.gguf", keys=bad)
        test.expect(what, "convert", path, {2}, ("bad.gguf", *names))
    for what, bad, names in bad_tensors(test.model.gguf):
        test.damages += 1
        test.write("bad.gguf", tensors=bad)
        test.expect(what, "convert", path, {2}, ("bad.gguf", *names))
    whole = path.read_bytes()
    for cut in range(0, len(whole), len(whole) // 61):
        test.damages += 1
        path.write_bytes(whole[:cut])
        test.expect(f"cut at {cut}", "convert", path, {2}, ("bad.gguf",))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--every", type=int, default=1, help="of the damaged runs, only every Nth")
    parser.add_argument("--sanitized", action="store_true", help="the program takes more memory")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-gguf-") as scratch_name:
        test = Tester(args.program, Path(scratch_name), args.every)
        test.sanitized = args.sanitized
        check_same_logits(test)
        check_qwen3_next(test)
        check_rounding(test)
        check_refusals(test)
        check_exhausting(test)
    for failure in test.failures[:30]:
        print("FAILED", failure)
    print(f"{test.damages} damaged models, {test.runs} runs and checks, "
          f"{len(test.failures)} failures; at most {test.most_kib // 1024} MiB")
    return 1 if test.failures or test.damages < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

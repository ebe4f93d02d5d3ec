#!/usr/bin/env python3
"""Checkpoints in published encodings, damaged or at odds with their own config.json.

Each case changes one thing in a small model that another program quantized, and must be refused:
exit code 2, one line that names the file and the tensor or key, nothing left behind. What the
headers tell is refused by --dry-run, what only the numbers tell by the conversion itself.

Exit code 77: the models are not there (MOEPACK_TEST_MODELS).
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from checkpoint_files import INDEX, SHARD, read_tensors, write_tensors
from cli_runner import CliRunner, conclude

CONFIG = "config.json"
MODELOPT = "hf_quant_config.json"
GATE = "model.layers.0.mlp.experts.0.gate_proj"
QUERY = "model.layers.0.self_attn.q_proj"
W1 = "model.layers.0.block_sparse_moe.experts.0.w1"
OSS = "model.layers.0.mlp.experts.gate_up_proj"
SWITCH = "model.layers.0.mlp.switch_mlp.gate_proj"
QUANT = "quantization_config"
SIZES = {"F32": 4, "F64": 8, "F16": 2, "BF16": 2, "I32": 4, "I64": 8}
NAN = {"F32": 0x7fc00000, "F16": 0x7e00, "BF16": 0x7fc0}
INF = {"F32": 0x7f800000, "F16": 0x7c00, "BF16": 0x7f80}


class Cases(CliRunner):
    TIMEOUT = 120

    def __init__(self, program, models, scratch):
        super().__init__(program, scratch)
        self.models = models
        self.names = set()

    def refused(self, model, what, change, needles, *flags):
        """`change` is given the folder of a copy of the model."""
        name = f"{model}: {what}"
        self.expect(name not in self.names, f"{name}: twice in the list")
        self.names.add(name)
        source = self.scratch / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(self.scratch / "output", ignore_errors=True)  # of a case that failed
        shutil.copytree(self.models / model, source, ignore=shutil.ignore_patterns("golden*"))
        change(source)
        self.refuses(name, needles, "convert", source, "-o", self.scratch / "output", *flags)

    def header(self, model, what, change, *needles):
        self.refused(model, what, change, needles, "--dry-run")

    def numbers(self, model, what, change, *needles):
        """What only reading every number tells."""
        self.refused(model, what, change, needles, "--quiet")

    def whole(self, model):
        """The model as it is converts: what is refused below is refused for its damage."""
        output = self.scratch / "output"
        shutil.rmtree(output, ignore_errors=True)
        self.succeeds("convert", self.models / model, "-o", output, "--quiet")
        shutil.rmtree(output, ignore_errors=True)


def in_json(change, file=CONFIG):
    def damage(source):
        document = json.loads((source / file).read_text())
        change(document)
        (source / file).write_text(json.dumps(document))
    return damage


def at(path, value, file=CONFIG):
    """Puts a value at a path of keys; a value of ... removes the key."""
    def change(document):
        for key in path[:-1]:
            document = document[key]
        if value is ...:
            del document[path[-1]]
        else:
            document[path[-1]] = value
    return in_json(change, file)


def quant(value, *path):
    return at((QUANT, *path), value)


def in_tensors(change):
    """The tensors, changed, in one file."""
    def damage(source):
        tensors = read_tensors(source)
        change(tensors)
        for path in source.glob("*.safetensors*"):
            path.unlink()
        write_tensors(source / SHARD, tensors)
    return damage


def without(name):
    return in_tensors(lambda t: t.pop(name))


def typed(name, dtype):
    """The same bytes under another type of the same width."""
    def change(tensors):
        _, shape, content = tensors[name]
        tensors[name] = (dtype, shape, content)
    return in_tensors(change)


def shaped(name, shape):
    """The same bytes, cut or filled with zeros, in another shape."""
    def change(tensors):
        dtype, old, content = tensors[name]
        count, size = 1, len(content)
        for n in old:
            size //= n
        for n in shape:
            count *= n
        tensors[name] = (dtype, shape, content[:count * size].ljust(count * size, b"\0"))
    return in_tensors(change)


def replaced(name, dtype, shape, content):
    def change(tensors):
        tensors[name] = (dtype, shape, content)
    return in_tensors(change)


def number(name, index, bits, size=None):
    """Element `index` of a tensor becomes these bits."""
    def change(tensors):
        dtype, shape, content = tensors[name]
        width = size or SIZES[dtype]
        value = bits[dtype] if isinstance(bits, dict) else bits
        data = bytearray(content)
        data[index * width:(index + 1) * width] = value.to_bytes(width, "little")
        tensors[name] = (dtype, shape, bytes(data))
    return in_tensors(change)


def fp8_cases(cases):
    model, scale = "qwen3_moe-fp8", GATE + ".weight_scale_inv"
    cases.whole(model)
    cases.header(model, "unknown method", quant("fp9", "quant_method"), CONFIG, "quant_method")
    cases.header(model, "method is a number", quant(7, "quant_method"), CONFIG, "quant_method")
    cases.header(model, "block is a text", at((QUANT,), "fp8"), CONFIG, QUANT)
    cases.header(model, "fmt e5m2", quant("e5m2", "fmt"), CONFIG, "fmt")
    for name, size in {"one number": [128], "zero": [0, 128], "negative": [-128, 128],
                       "fractions": [128.5, 128], "a number": 128}.items():
        cases.header(model, f"block size: {name}", quant(size, "weight_block_size"), CONFIG,
                     "weight_block_size")
    cases.header(model, "block size of another grid", quant([64, 64], "weight_block_size"), SHARD,
                 "weight_scale_inv")
    cases.header(model, "declared gptq", quant("gptq", "quant_method"), SHARD, ".weight")
    cases.header(model, "declared awq", quant("awq", "quant_method"), SHARD, ".weight")
    cases.header(model, "declared mxfp4", quant("mxfp4", "quant_method"), SHARD, ".weight")
    cases.header(model, "scales missing", without(scale), SHARD, GATE)
    cases.header(model, "scales of attention missing", without(QUERY + ".weight_scale_inv"), SHARD,
                 QUERY)
    cases.header(model, "one scale too few", shaped(scale, [2, 1]), SHARD, scale)
    cases.header(model, "scales in one row", shaped(scale, [4]), SHARD, scale)
    cases.header(model, "scales in three dimensions", shaped(scale, [1, 2, 2]), SHARD, scale)
    cases.header(model, "scales I32", typed(scale, "I32"), SHARD, scale)
    cases.header(model, "codes F8_E5M2", typed(GATE + ".weight", "F8_E5M2"), SHARD, GATE)
    cases.header(model, "codes U8", typed(GATE + ".weight", "U8"), SHARD, GATE)
    cases.header(model, "codes transposed", shaped(GATE + ".weight", [144, 136]), SHARD,
                 GATE + ".weight")
    cases.header(model, "scales beside plain numbers",
                 replaced(GATE + ".weight", "BF16", [136, 144], bytes(2 * 136 * 144)), SHARD, GATE)
    cases.numbers(model, "scale NaN", number(scale, 1, NAN), SHARD, scale)
    cases.numbers(model, "scale infinite", number(scale, 3, INF), SHARD, scale)


def gptq_cases(cases):
    model = "qwen3_moe-gptq-act"
    cases.whole(model)
    for bits in (0, 1, 5, 16, -4, "4"):
        cases.header(model, f"bits {bits!r}", quant(bits, "bits"), CONFIG, "bits")
    cases.header(model, "bits that the words are not of", quant(8, "bits"), SHARD, "qweight")
    for group in (0, -2, "32", 1.5):
        cases.header(model, f"group size {group!r}", quant(group, "group_size"), CONFIG,
                     "group_size")
    cases.header(model, "groups of another count", quant(64, "group_size"), SHARD, ".scales")
    cases.header(model, "one group where scales have three", quant(-1, "group_size"), SHARD,
                 ".scales")
    cases.header(model, "unknown format", quant("marlin", "checkpoint_format"), CONFIG,
                 "checkpoint_format")
    cases.header(model, "Marlin's order", quant(True, "is_marlin_format"), CONFIG,
                 "is_marlin_format")
    cases.header(model, "sym is a text", quant("yes", "sym"), CONFIG, "sym")
    cases.header(model, "desc_act is a number", quant(1, "desc_act"), CONFIG, "desc_act")
    cases.header(model, "groups of some modules",
                 quant({"+:.*gate_proj": {"group_size": 16}}, "dynamic"), CONFIG, "group_size")
    cases.header(model, "declared awq", quant("awq", "quant_method"), SHARD, GATE[:14])
    cases.header(model, "declared fp8", quant("fp8", "quant_method"), SHARD, "qweight")
    cases.header(model, "nothing declared", at((QUANT,), ...), SHARD, "qweight")
    cases.header(model, "scales missing", without(GATE + ".scales"), SHARD, GATE, "scales")
    cases.header(model, "zeros missing", without(GATE + ".qzeros"), SHARD, GATE, "qzeros")
    cases.header(model, "order missing", without(GATE + ".g_idx"), SHARD, GATE, "g_idx")
    cases.header(model, "codes missing", without(GATE + ".qweight"), GATE)
    cases.header(model, "order too short", shaped(GATE + ".g_idx", [95]), SHARD, GATE + ".g_idx")
    cases.header(model, "order too long", shaped(GATE + ".g_idx", [128]), SHARD, GATE + ".g_idx")
    cases.header(model, "order F32", typed(GATE + ".g_idx", "F32"), SHARD, GATE + ".g_idx")
    cases.header(model, "scales of two groups", shaped(GATE + ".scales", [2, 64]), SHARD,
                 GATE + ".scales")
    cases.header(model, "scales I16", typed(GATE + ".scales", "I16"), SHARD, GATE + ".scales")
    cases.header(model, "zeros not packed", shaped(GATE + ".qzeros", [3, 64]), SHARD,
                 GATE + ".qzeros")
    cases.header(model, "zeros F32", typed(GATE + ".qzeros", "F32"), SHARD, GATE + ".qzeros")
    cases.header(model, "words that hold other inputs", shaped(GATE + ".qweight", [11, 64]), SHARD,
                 GATE + ".qweight")
    cases.header(model, "words of other outputs", shaped(GATE + ".qweight", [12, 60]), SHARD,
                 GATE + ".qweight")
    cases.header(model, "words F32", typed(GATE + ".qweight", "F32"), SHARD, GATE)
    cases.numbers(model, "a group that has no scales", number(GATE + ".g_idx", 5, 3), SHARD,
                  GATE + ".g_idx")
    cases.numbers(model, "a negative group", number(GATE + ".g_idx", 5, 0xffffffff), SHARD,
                  GATE + ".g_idx")
    cases.numbers(model, "scale NaN", number(GATE + ".scales", 70, NAN), SHARD, GATE + ".scales")
    cases.numbers(model, "scale infinite", number(GATE + ".scales", 0, INF), SHARD,
                  GATE + ".scales")
    kept = "qwen3_moe-gptq"
    cases.numbers(kept, "a zero beside the middle", number(GATE + ".qzeros", 2, 0x77777677), SHARD,
                  GATE + ".qzeros")
    cases.numbers(kept, "an order where there is none", number(GATE + ".g_idx", 40, 2), SHARD,
                  GATE + ".g_idx")


def awq_cases(cases):
    model = "mixtral-awq"
    cases.whole(model)
    cases.header(model, "version gemv", quant("gemv", "version"), CONFIG, "version")
    cases.header(model, "bits 8", quant(8, "bits"), CONFIG, "bits")
    cases.header(model, "no zeros", quant(False, "zero_point"), CONFIG, "zero_point")
    cases.header(model, "groups that do not divide the inputs", quant(40, "group_size"), SHARD,
                 "qweight", "group_size")
    cases.header(model, "declared gptq", quant("gptq", "quant_method"), SHARD, "qweight")
    cases.header(model, "scales missing", without(W1 + ".scales"), SHARD, W1, "scales")
    cases.header(model, "zeros missing", without(W1 + ".qzeros"), SHARD, W1, "qzeros")
    cases.header(model, "zeros of other outputs", shaped(W1 + ".qzeros", [3, 7]), SHARD,
                 W1 + ".qzeros")
    cases.header(model, "words of other outputs", shaped(W1 + ".qweight", [96, 7]), SHARD,
                 W1 + ".qweight")
    cases.header(model, "an order of inputs", replaced(W1 + ".g_idx", "I32", [96], bytes(384)),
                 SHARD, W1 + ".g_idx")
    cases.numbers(model, "scale NaN", number(W1 + ".scales", 9, NAN), SHARD, W1 + ".scales")


def compressed_cases(cases):
    model, weights = "qwen3_moe-ct-int4-asym", ("config_groups", "group_0", "weights")
    cases.whole(model)
    cases.header(model, "unknown format", quant("marlin-24", "format"), CONFIG, "format")
    cases.header(model, "no format", quant(..., "format"), CONFIG, "format")
    cases.header(model, "no groups", quant(..., "config_groups"), CONFIG, "config_groups")
    cases.header(model, "a group without weights", quant(..., *weights), CONFIG, "weights")
    cases.header(model, "nine bits", quant(9, *weights, "num_bits"), CONFIG, "num_bits")
    cases.header(model, "one bit", quant(1, *weights, "num_bits"), CONFIG, "num_bits")
    cases.header(model, "floats of six bits",
                 in_json(lambda c: c[QUANT]["config_groups"]["group_0"]["weights"].update(
                     {"num_bits": 6, "type": "float"})), CONFIG, "num_bits")
    cases.header(model, "dynamic weights", quant(True, *weights, "dynamic"), CONFIG, "dynamic")
    cases.header(model, "sparse", quant({"format": "sparse-24-bitmask"}, "sparsity_config"), CONFIG,
                 "sparsity_config")
    cases.header(model, "bits that the words are not of", quant(8, *weights, "num_bits"), SHARD,
                 "weight_packed")
    cases.header(model, "group size of other scales", quant(64, *weights, "group_size"), SHARD,
                 "weight_scale", "group_size")
    cases.header(model, "scales missing", without(GATE + ".weight_scale"), SHARD, GATE,
                 "weight_scale")
    cases.header(model, "scales of two groups", shaped(GATE + ".weight_scale", [64, 2]), SHARD,
                 GATE + ".weight")
    cases.header(model, "scales of other rows", shaped(GATE + ".weight_scale", [32, 3]), SHARD,
                 GATE + ".weight_scale")
    cases.header(model, "scales I16", typed(GATE + ".weight_scale", "I16"), SHARD,
                 GATE + ".weight_scale")
    cases.header(model, "zeros not packed", shaped(GATE + ".weight_zero_point", [64, 3]), SHARD,
                 GATE + ".weight_zero_point")
    cases.header(model, "zeros F32", typed(GATE + ".weight_zero_point", "F32"), SHARD,
                 GATE + ".weight_zero_point")
    cases.header(model, "words too few", shaped(GATE + ".weight_packed", [64, 11]), SHARD,
                 GATE + ".weight_packed")
    cases.numbers(model, "scale NaN", number(GATE + ".weight_scale", 9, NAN), SHARD,
                  GATE + ".weight_scale")
    cases.numbers(model, "scale infinite", number(GATE + ".weight_scale", 9, INF), SHARD,
                  GATE + ".weight_scale")
    rows = "glm4_moe-ct-int8"
    cases.header(rows, "scales missing", without(QUERY + ".weight_scale"), SHARD, QUERY)
    cases.header(rows, "scales of half the rows", shaped(QUERY + ".weight_scale", [64, 1]), SHARD,
                 QUERY + ".weight_scale")
    cases.numbers(rows, "scale NaN", number(QUERY + ".weight_scale", 9, NAN), SHARD,
                  QUERY + ".weight_scale")


def float_cases(cases):
    model, factor = "qwen3_moe-ct-nvfp4", GATE + ".weight_global_scale"
    cases.whole(model)
    cases.header(model, "factor missing", without(factor), SHARD, GATE)
    cases.header(model, "scales missing", without(GATE + ".weight_scale"), SHARD, GATE)
    cases.header(model, "two factors", shaped(factor, [2]), SHARD, factor)
    cases.header(model, "factor I32", typed(factor, "I32"), SHARD, factor)
    cases.header(model, "scales of half the groups", shaped(GATE + ".weight_scale", [64, 4]), SHARD,
                 GATE + ".weight_scale")
    cases.header(model, "half the codes", shaped(GATE + ".weight_packed", [64, 32]), SHARD,
                 GATE + ".weight_packed")
    for name, bits in {"zero": 0, "negative": 0xbf800000, "NaN": NAN, "infinite": INF}.items():
        cases.numbers(model, f"factor {name}", number(factor, 0, bits), SHARD, factor)
    cases.numbers(model, "scale NaN", number(GATE + ".weight_scale", 9, 0x7f, 1), SHARD,
                  GATE + ".weight_scale")
    opt = "qwen3_moe-modelopt-nvfp4"
    cases.whole(opt)
    cases.header(opt, "unknown algorithm", at(("quantization", "quant_algo"), "W4A16", MODELOPT),
                 MODELOPT, "quant_algo")
    cases.header(opt, "no algorithm", at(("quantization", "quant_algo"), ..., MODELOPT), MODELOPT,
                 "quant_algo")
    cases.header(opt, "groups of 32", at(("quantization", "group_size"), 32, MODELOPT), MODELOPT,
                 "group_size")
    cases.header(opt, "no block", at(("quantization",), ..., MODELOPT), MODELOPT, "quantization")
    cases.header(opt, "cut file", lambda s: (s / MODELOPT).write_text("{"), MODELOPT)
    cases.header(opt, "another method in config.json",
                 at((QUANT,), {"quant_method": "awq", "bits": 4, "group_size": 32}), MODELOPT,
                 "quantization")
    cases.header(opt, "factor missing", without(GATE + ".weight_scale_2"), SHARD, GATE)
    cases.header(opt, "scales missing", without(GATE + ".weight_scale"), SHARD, GATE)
    oss = "gpt_oss-mxfp4"
    cases.whole(oss)
    cases.header(oss, "scales missing", without(OSS + "_scales"), SHARD, OSS)
    cases.header(oss, "blocks missing", without(OSS + "_blocks"), "layers.0.mlp.experts")
    cases.header(oss, "scales of two blocks", shaped(OSS + "_scales", [6, 128, 2]), SHARD,
                 OSS + "_scales")
    cases.header(oss, "blocks of eight bytes", shaped(OSS + "_blocks", [6, 128, 3, 8]), SHARD,
                 OSS + "_blocks")
    cases.header(oss, "biases of half the rows", shaped(OSS + "_bias", [6, 64]), SHARD,
                 OSS + "_bias")
    cases.numbers(oss, "scale NaN", number(OSS + "_scales", 77, 255, 1), SHARD, OSS + "_scales")


def mlx_cases(cases):
    model = "qwen3_moe-mlx-affine3"
    cases.whole(model)

    def both(key, value):
        def change(config):
            for block in ("quantization", QUANT):
                config[block][key] = value
        return in_json(change)
    for key, value in {"bits": 7, "group_size": 48, "mode": "fancy"}.items():
        cases.header(model, f"{key} {value}", both(key, value), CONFIG, key)
    router = "model.layers.0.mlp.gate"
    cases.header(model, "router of four bits", both(router, {"group_size": 64, "bits": 4}), router)
    cases.header(model, "router that is text", both(router, "8"), CONFIG, router)
    cases.header(model, "blocks that differ", quant(4, "bits"), CONFIG, "quantization")
    cases.header(model, "scales missing", without(SWITCH + ".scales"), SHARD, SWITCH)
    cases.header(model, "biases missing", without(SWITCH + ".biases"), SHARD, SWITCH)
    cases.header(model, "biases of another shape", shaped(SWITCH + ".biases", [5, 64, 2]), SHARD,
                 SWITCH + ".biases")
    cases.header(model, "words too few", shaped(SWITCH + ".weight", [5, 64, 11]), SHARD, SWITCH)
    floats = "qwen3_moe-mlx-mxfp4"
    cases.header(floats, "scales missing", without(SWITCH + ".scales"), SHARD, SWITCH)
    cases.numbers(floats, "scale NaN", number(SWITCH + ".scales", 9, 255, 1), SHARD,
                  SWITCH + ".scales")


def shards_and_sizes_cases(cases):
    model = "deepseek_v3-ct-int4"
    cases.whole(model)
    second = "model-00002-of-00002.safetensors"

    def twice(source):
        first, other = (sorted(source.glob("model-*.safetensors")))
        name = next(iter(read_one(first)))
        write_tensors(other, read_one(other) | {name: read_one(first)[name]})
    cases.header(model, "a tensor in two shards", twice, "safetensors", "model.")

    def in_index(change):
        return in_json(lambda i: change(i["weight_map"]), INDEX)

    def move(weight_map):
        weight_map[sorted(weight_map)[0]] = "model-00003-of-00002.safetensors"
    cases.header(model, "a shard that is not there", in_index(move), "model-00003-of-00002")

    def swap(weight_map):
        name = next(n for n, file in sorted(weight_map.items()) if file == second)
        weight_map[name] = "model-00001-of-00002.safetensors"
    cases.header(model, "a tensor in another shard than said", in_index(swap), "model.")
    cases.header(model, "a path for a shard",
                 in_index(lambda m: m.update({sorted(m)[0]: "../" + second})), INDEX, "../")
    cases.header(model, "one shard missing", lambda s: (s / second).unlink(), second)
    plain = "qwen3_moe-fp8"
    last = "model.layers.1.mlp.experts.2.up_proj"
    cases.header(plain, "an expert's matrix missing",
                 in_tensors(lambda t: [t.pop(last + x) for x in (".weight", ".weight_scale_inv")]),
                 "layers.1.mlp", "up_proj")
    for key, value in {"num_hidden_layers": 3, "num_experts": 64, "hidden_size": 160,
                       "moe_intermediate_size": 128, "vocab_size": 161, "head_dim": 48}.items():
        cases.header(plain, f"config.json: {key}", at((key,), value), "model.")
    cases.header(plain, "fewer experts than tensors",
                 in_json(lambda c: c.update(num_experts=c["num_experts"] - 1)), SHARD, "model.")
    cases.header(plain, "heads that are no multiple", at(("num_key_value_heads",), 3), CONFIG,
                 "num_key_value_heads")
    cases.header(plain, "more experts a token than there are", at(("num_experts_per_tok",), 65),
                 CONFIG, "num_experts_per_tok")


def quantize_cases(cases):
    """Experts of odd widths: nothing is advised that quantize does not have."""
    model = cases.scratch / "odd"
    cases.succeeds("convert", cases.models / "qwen3_5_moe_hub-fp8", "-o", model, "--quiet")
    result = cases.run("quantize", model, "--name", "x", "--bits", 4, "--method", "rtn")
    cases.is_error("no group fits", result, ["136 x 144", "none; ", "cannot be quantized"])
    cases.expect("--expert-format" not in result.stderr, f"no group fits: {result.stderr}")
    shutil.rmtree(model)


def read_one(path):
    folder = path.parent / "one"
    folder.mkdir()
    try:
        shutil.copy(path, folder)
        return read_tensors(folder)
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, type=Path)
    args = parser.parse_args()
    models = Path(os.environ.get("MOEPACK_TEST_MODELS", "")) / "encodings"
    if not os.environ.get("MOEPACK_TEST_MODELS") or not models.is_dir():
        print("SKIPPED: no models in published encodings (MOEPACK_TEST_MODELS)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        cases = Cases(args.program, models, Path(scratch))
        for group in (fp8_cases, gptq_cases, awq_cases, compressed_cases, float_cases, mlx_cases,
                      shards_and_sizes_cases, quantize_cases):
            group(cases)
        cases.expect(len(cases.names) >= 60, f"only {len(cases.names)} cases")
        return conclude(cases.failures, f"{len(cases.names)} damaged checkpoints, ")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Sizes of published models as `moepack convert --dry-run` tells them, from headers alone.

For each model it writes a checkpoint with the tensors, shapes, types and number of shards that the
published one has, whose files are holes, and runs the command on it: what the model directory would
take, and the peak of the command's memory. Dimensions are those of the published config.json.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

WIDTHS = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4}
BLOCK = 128  # of FP8: rows and columns that share a scale


class Tensors:
    """name -> (dtype, shape), in the order in which they are added, and the weights they stand for."""

    def __init__(self, encoding="bf16"):
        self.encoding, self.list, self.weights = encoding, {}, 0

    def plain(self, name, *shape, dtype="BF16"):
        self.list[name] = (dtype, list(shape))
        self.weights += math.prod(shape)

    def matrix(self, name, rows, cols):
        """A linear module: what the encoding of the checkpoint rounds."""
        if self.encoding != "fp8":
            return self.plain(name + ".weight", rows, cols)
        self.plain(name + ".weight", rows, cols, dtype="F8_E4M3")
        self.list[name + ".weight_scale_inv"] = (
            "F32", [-(-rows // BLOCK), -(-cols // BLOCK)])
        return None

    def mlp(self, name, hidden, width, parts=("gate_proj", "up_proj", "down_proj")):
        gate, up, down = parts
        self.matrix(f"{name}.{gate}", width, hidden)
        self.matrix(f"{name}.{up}", width, hidden)
        self.matrix(f"{name}.{down}", hidden, width)


def ends(tensors, c, prefix="model.", head="lm_head"):
    tensors.plain(prefix + "embed_tokens.weight", c["vocab_size"], c["hidden_size"])
    tensors.plain(prefix + "norm.weight", c["hidden_size"])
    tensors.plain(head + ".weight", c["vocab_size"], c["hidden_size"])


def norms(tensors, layer, hidden):
    tensors.plain(layer + "input_layernorm.weight", hidden)
    tensors.plain(layer + "post_attention_layernorm.weight", hidden)


def attention(tensors, layer, c, head_norms=None, biases=(), gated=False):
    """Grouped-query attention; `head_norms`: values that q_norm and k_norm have, if any."""
    head = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    queries, keys = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    hidden, at = c["hidden_size"], layer + "self_attn."
    for name, rows, cols in (("q_proj", queries * (2 if gated else 1), hidden),
                             ("k_proj", keys, hidden), ("v_proj", keys, hidden),
                             ("o_proj", hidden, queries)):
        tensors.matrix(at + name, rows, cols)
        if name in biases:
            tensors.plain(at + name + ".bias", rows)
    if head_norms == "head":
        tensors.plain(at + "q_norm.weight", head)
        tensors.plain(at + "k_norm.weight", head)
    elif head_norms == "whole":
        tensors.plain(at + "q_norm.weight", queries)
        tensors.plain(at + "k_norm.weight", keys)


def latent_attention(tensors, layer, c):
    hidden, heads, at = c["hidden_size"], c["num_attention_heads"], layer + "self_attn."
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    tensors.matrix(at + "q_a_proj", c["q_lora_rank"], hidden)
    tensors.plain(at + "q_a_layernorm.weight", c["q_lora_rank"])
    tensors.matrix(at + "q_b_proj", heads * (nope + rope), c["q_lora_rank"])
    tensors.matrix(at + "kv_a_proj_with_mqa", c["kv_lora_rank"] + rope, hidden)
    tensors.plain(at + "kv_a_layernorm.weight", c["kv_lora_rank"])
    tensors.matrix(at + "kv_b_proj", heads * (nope + value), c["kv_lora_rank"])
    tensors.matrix(at + "o_proj", hidden, heads * value)


def experts(tensors, layer, c, count, width, folder="mlp.", parts=("gate_proj", "up_proj", "down_proj")):
    for e in range(count):
        tensors.mlp(f"{layer}{folder}experts.{e}", c["hidden_size"], width, parts)


def shared_and_router(tensors, layer, c):
    """The router with corrections and the shared expert of DeepSeek-V3's and GLM-4.5's layers."""
    tensors.plain(layer + "mlp.gate.weight", c["n_routed_experts"], c["hidden_size"])
    tensors.plain(layer + "mlp.gate.e_score_correction_bias", c["n_routed_experts"], dtype="F32")
    tensors.mlp(layer + "mlp.shared_experts", c["hidden_size"],
                c["n_shared_experts"] * c["moe_intermediate_size"])


def prediction_joints(tensors, layer, c):
    hidden, vocabulary = c["hidden_size"], c["vocab_size"]
    for name, shape in (("enorm", [hidden]), ("hnorm", [hidden]), ("eh_proj", [hidden, 2 * hidden]),
                        ("embed_tokens", [vocabulary, hidden]), ("shared_head.norm", [hidden]),
                        ("shared_head.head", [vocabulary, hidden])):
        tensors.plain(f"{layer}{name}.weight", *shape)


def deepseek(c, encoding):
    tensors = Tensors(encoding)
    ends(tensors, c)
    for i in range(c["num_hidden_layers"] + c["num_nextn_predict_layers"]):
        layer = f"model.layers.{i}."
        norms(tensors, layer, c["hidden_size"])
        latent_attention(tensors, layer, c)
        if i < c["first_k_dense_replace"]:
            tensors.mlp(layer + "mlp", c["hidden_size"], c["intermediate_size"])
        else:
            shared_and_router(tensors, layer, c)
            experts(tensors, layer, c, c["n_routed_experts"], c["moe_intermediate_size"])
        if i >= c["num_hidden_layers"]:
            prediction_joints(tensors, layer, c)
    return tensors


def glm(c, encoding):
    tensors = Tensors(encoding)
    ends(tensors, c)
    for i in range(c["num_hidden_layers"] + c["num_nextn_predict_layers"]):
        layer = f"model.layers.{i}."
        norms(tensors, layer, c["hidden_size"])
        attention(tensors, layer, c, "head", ("q_proj", "k_proj", "v_proj"))
        if i < c["first_k_dense_replace"]:
            tensors.mlp(layer + "mlp", c["hidden_size"], c["intermediate_size"])
        else:
            shared_and_router(tensors, layer, c)
            experts(tensors, layer, c, c["n_routed_experts"], c["moe_intermediate_size"])
        if i >= c["num_hidden_layers"]:
            prediction_joints(tensors, layer, c)
    return tensors


def qwen3(c, encoding):
    tensors = Tensors(encoding)
    ends(tensors, c)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        norms(tensors, layer, c["hidden_size"])
        attention(tensors, layer, c, "head")
        tensors.plain(layer + "mlp.gate.weight", c["num_experts"], c["hidden_size"])
        experts(tensors, layer, c, c["num_experts"], c["moe_intermediate_size"])
    return tensors


def olmoe(c, encoding):
    tensors = Tensors(encoding)
    ends(tensors, c)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        norms(tensors, layer, c["hidden_size"])
        attention(tensors, layer, c, "whole")
        tensors.plain(layer + "mlp.gate.weight", c["num_experts"], c["hidden_size"])
        experts(tensors, layer, c, c["num_experts"], c["intermediate_size"])
    return tensors


def block_sparse(c, encoding):
    """Mixtral and MiniMax-M2."""
    tensors = Tensors(encoding)
    ends(tensors, c)
    minimax = c["model_type"] == "minimax_m2"
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        norms(tensors, layer, c["hidden_size"])
        attention(tensors, layer, c, "whole" if minimax else None)
        at = layer + "block_sparse_moe."
        tensors.plain(at + "gate.weight", c["num_local_experts"], c["hidden_size"])
        if minimax:
            tensors.plain(at + "e_score_correction_bias", c["num_local_experts"], dtype="F32")
        experts(tensors, layer, c, c["num_local_experts"], c["intermediate_size"],
                "block_sparse_moe.", ("w1", "w3", "w2"))
    return tensors


def gpt_oss(c, encoding):
    tensors = Tensors(encoding)
    ends(tensors, c)
    hidden, width, count = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        norms(tensors, layer, hidden)
        attention(tensors, layer, c, biases=("q_proj", "k_proj", "v_proj", "o_proj"))
        tensors.plain(layer + "self_attn.sinks", c["num_attention_heads"])
        tensors.plain(layer + "mlp.router.weight", count, hidden)
        tensors.plain(layer + "mlp.router.bias", count)
        for name, rows, cols in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
            at = f"{layer}mlp.experts.{name}"
            tensors.list[at + "_blocks"] = ("U8", [count, rows, cols // 32, 16])
            tensors.list[at + "_scales"] = ("U8", [count, rows, cols // 32])
            tensors.weights += count * rows * cols
            tensors.plain(at + "_bias", count, rows)
    return tensors


def delta(tensors, layer, c, fused):
    """GatedDeltaNet, with its projections as Qwen3-Next groups them or as Qwen3.5 does."""
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    heads, hidden, at = c["linear_num_value_heads"], c["hidden_size"], layer + "linear_attn."
    if fused:
        tensors.matrix(at + "in_proj_qkvz", 2 * keys + 2 * values, hidden)
        tensors.matrix(at + "in_proj_ba", 2 * heads, hidden)
    else:
        for name, rows in (("qkv", 2 * keys + values), ("z", values), ("b", heads), ("a", heads)):
            tensors.matrix(at + "in_proj_" + name, rows, hidden)
    tensors.plain(at + "conv1d.weight", 2 * keys + values, 1, c["linear_conv_kernel_dim"])
    tensors.plain(at + "A_log", heads)
    tensors.plain(at + "dt_bias", heads)
    tensors.plain(at + "norm.weight", c["linear_value_head_dim"])
    tensors.matrix(at + "out_proj", hidden, values)


def qwen_mixture(tensors, layer, c, stacked):
    hidden, width, count = c["hidden_size"], c["moe_intermediate_size"], c["num_experts"]
    tensors.plain(layer + "mlp.gate.weight", count, hidden)
    tensors.mlp(layer + "mlp.shared_expert", hidden, c["shared_expert_intermediate_size"])
    tensors.plain(layer + "mlp.shared_expert_gate.weight", 1, hidden)
    if stacked:
        tensors.plain(layer + "mlp.experts.gate_up_proj", count, 2 * width, hidden)
        tensors.plain(layer + "mlp.experts.down_proj", count, hidden, width)
    else:
        experts(tensors, layer, c, count, width)


def qwen_delta(c, encoding):
    """Qwen3-Next, one tensor per expert, and Qwen3.5, all experts in one; both with their MTP
    block, whose experts are tensors of their own."""
    stacked = c["model_type"] == "qwen3_5_moe_text"
    prefix = "model.language_model." if stacked else "model."
    tensors = Tensors(encoding)
    ends(tensors, c, prefix)
    hidden = c["hidden_size"]
    for i in range(c["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        norms(tensors, layer, hidden)
        if i % 4 == 3:
            attention(tensors, layer, c, "head", gated=True)
        else:
            delta(tensors, layer, c, not stacked)
        qwen_mixture(tensors, layer, c, stacked)
    tensors.plain("mtp.fc.weight", hidden, 2 * hidden)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        tensors.plain(f"mtp.{name}.weight", hidden)
    norms(tensors, "mtp.layers.0.", hidden)
    attention(tensors, "mtp.layers.0.", c, "head", gated=True)
    qwen_mixture(tensors, "mtp.layers.0.", c, False)
    return tensors


FP8 = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                               "activation_scheme": "dynamic"}}
LATENT = {"hidden_size": 7168, "num_hidden_layers": 61, "q_lora_rank": 1536, "kv_lora_rank": 512,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
          "moe_intermediate_size": 2048, "intermediate_size": 18432, "n_shared_experts": 1,
          "num_experts_per_tok": 8, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
          "norm_topk_prob": True, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
          "hidden_act": "silu", "max_position_embeddings": 163840}
DELTA = {"full_attention_interval": 4, "head_dim": 256, "num_key_value_heads": 2,
         "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
         "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10,
         "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu"}
QWEN3 = {"model_type": "qwen3_moe", "head_dim": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
         "norm_topk_prob": True, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": False,
         "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu",
         "max_position_embeddings": 262144}
CODER = {**QWEN3, "hidden_size": 6144, "num_hidden_layers": 62, "num_attention_heads": 96,
         "num_key_value_heads": 8, "num_experts": 160, "moe_intermediate_size": 2560}

# name -> (tensors, encoding, shards, config)
MODELS = {
    "DeepSeek-V3-671B": (deepseek, "fp8", 163, {
        **LATENT, **FP8, "model_type": "deepseek_v3", "vocab_size": 129280,
        "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256,
        "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 1, "rope_theta": 10000}),
    "Kimi-K2-1T": (deepseek, "fp8", 61, {
        **LATENT, **FP8, "model_type": "kimi_k2", "vocab_size": 163840, "num_attention_heads": 64,
        "num_key_value_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1,
        "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
        "num_nextn_predict_layers": 0, "rope_theta": 50000}),
    "Qwen3-235B-A22B": (qwen3, "bf16", 118, {
        **QWEN3, "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
        "num_key_value_heads": 4, "num_experts": 128, "moe_intermediate_size": 1536}),
    "Qwen3-Coder-480B-A35B": (qwen3, "bf16", 241, CODER),
    "Qwen3-Coder-480B-A35B-FP8": (qwen3, "fp8", 160, {**CODER, **FP8}),
    "GLM-4.5-355B": (glm, "bf16", 93, {
        "model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92,
        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
        "n_routed_experts": 160, "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
        "intermediate_size": 12288, "first_k_dense_replace": 3, "n_shared_experts": 1,
        "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
        "vocab_size": 151552, "attention_bias": True, "use_qk_norm": True,
        "partial_rotary_factor": 0.5, "rope_theta": 1e6, "rms_norm_eps": 1e-5,
        "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "hidden_act": "silu",
        "max_position_embeddings": 131072}),
    "gpt-oss-120b": (gpt_oss, "mxfp4", 15, {
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4, "vocab_size": 201088,
        "sliding_window": 128, "attention_bias": True, "swiglu_limit": 7.0, "rms_norm_eps": 1e-5,
        "layer_types": ["sliding_attention", "full_attention"] * 18, "rope_theta": 150000,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 4096, "truncate": False},
        "quantization_config": {"quant_method": "mxfp4"}, "tie_word_embeddings": False,
        "hidden_act": "silu", "max_position_embeddings": 131072}),
    "MiniMax-M2-230B": (block_sparse, "fp8", 130, {
        **FP8, "model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 62,
        "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 256, "num_experts_per_tok": 8, "intermediate_size": 1536,
        "vocab_size": 200064, "rotary_dim": 64, "rope_theta": 5e6, "use_qk_norm": True,
        "qk_norm_type": "per_layer", "use_routing_bias": True, "scoring_func": "sigmoid",
        "shared_intermediate_size": 0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
        "hidden_act": "silu", "max_position_embeddings": 196608}),
    "Mixtral-8x22B": (block_sparse, "bf16", 59, {
        "model_type": "mixtral", "hidden_size": 6144, "num_hidden_layers": 56,
        "num_attention_heads": 48, "num_key_value_heads": 8, "num_local_experts": 8,
        "num_experts_per_tok": 2, "intermediate_size": 16384, "vocab_size": 32768,
        "rope_theta": 1e6, "rms_norm_eps": 1e-5, "sliding_window": None,
        "tie_word_embeddings": False, "hidden_act": "silu", "max_position_embeddings": 65536}),
    "OLMoE-7B": (olmoe, "bf16", 3, {
        "model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
        "num_experts_per_tok": 8, "intermediate_size": 1024, "vocab_size": 50304,
        "norm_topk_prob": False, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "clip_qkv": None,
        "attention_bias": False, "tie_word_embeddings": False, "hidden_act": "silu",
        "max_position_embeddings": 4096}),
    "Qwen3-Next-80B-A3B": (qwen_delta, "bf16", 41, {
        **DELTA, "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "vocab_size": 151936, "rope_theta": 1e7,
        "partial_rotary_factor": 0.25, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "max_position_embeddings": 262144}),
    "Qwen3.5-397B-A17B": (qwen_delta, "bf16", 94, {
        **DELTA, "model_type": "qwen3_5_moe_text", "hidden_size": 4096, "num_hidden_layers": 60,
        "num_attention_heads": 32, "linear_num_value_heads": 64, "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024, "vocab_size": 248320,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                            "partial_rotary_factor": 0.25},
        "max_position_embeddings": 262144}),
}


def bytes_of(dtype, shape):
    return WIDTHS[dtype] * math.prod(shape)


def write_holes(directory, tensors, shards, config):
    """The checkpoint: config.json, index and shards whose data no one has written. Returns the
    bytes that its tensors have."""
    (directory / "config.json").write_text(json.dumps(config))
    total = sum(bytes_of(*entry) for entry in tensors.values())
    parts, sizes = [{}], [0]
    for name, entry in tensors.items():
        if sizes[-1] > 0 and sum(sizes) >= total * len(parts) / shards:
            parts.append({})
            sizes.append(0)
        parts[-1][name] = entry
        sizes[-1] += bytes_of(*entry)
    weight_map = {}
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        header, at = {}, 0
        for name, (dtype, shape) in part.items():
            size = bytes_of(dtype, shape)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
            weight_map[name] = file
        text = json.dumps(header).encode()
        with open(directory / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + at)
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    return total, len(parts)


def dry_run(program, source, output):
    """(report, peak KiB, seconds of processor time)."""
    process = subprocess.Popen([program, "convert", source, "-o", output, "--keep-prediction",
                                "--dry-run", "--json", "--quiet"], stdout=subprocess.PIPE)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{source}: exit code {process.returncode}")
    return json.loads(text), usage.ru_maxrss, usage.ru_utime + usage.ru_stime


def write_model(name, source):
    """(tensors, weights, shards, bytes) of the checkpoint that it writes."""
    make, encoding, shards, config = MODELS[name]
    tensors = make(config, encoding)
    source.mkdir()
    total, files = write_holes(source, tensors.list, shards, config)
    return len(tensors.list), tensors.weights, files, total


def measure(program, name, scratch):
    """The figures of one model. Its tensors are listed in a process of their own, because the peak
    of a command counts what its parent held when it was started."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="headers-") as directory:
        source = Path(directory) / name
        with ProcessPoolExecutor(max_workers=1) as pool:
            tensors, weights, files, total = pool.submit(write_model, name, source).result()
        report, kib, seconds = dry_run(program, source, Path(directory) / "model")
    return {"model": name, "tensors": tensors, "shards": files, "weights": weights,
            "source_bytes": total, "report": report, "peak_kib": kib, "cpu_seconds": seconds}


def row(m):
    r = m["report"]
    cells = [m["model"], m["tensors"], m["shards"], f"{m['weights'] / 1e9:.2f}",
             f"{m['source_bytes'] / 1e9:.1f}", r["expert_format"], f"{r['expert_size']:,}",
             f"{r['expert_bytes'] / 1e9:.1f}", f"{r['resident_bytes'] / 1e9:.2f}",
             f"{r['prediction_bytes'] / 1e9:.2f}", f"{r['total_bytes'] / 1e9:.1f}",
             f"{m['peak_kib'] / 1024:.0f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="moepack")
    parser.add_argument("--scratch", help="a directory whose file system has sparse files")
    parser.add_argument("models", nargs="*", help="names; all without any: " + ", ".join(MODELS))
    args = parser.parse_args()
    print("| model | tensors | shards | weights (10⁹) | checkpoint GB | experts as | bytes each | "
          "experts GB | residents GB | prediction GB | model directory GB | peak MiB |")
    print("|" + "---|" * 12)
    for name in args.models or MODELS:
        print(row(measure(args.program, name, args.scratch)), flush=True)


if __name__ == "__main__":
    main()

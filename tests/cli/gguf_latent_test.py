#!/usr/bin/env python3
"""GGUF files of `deepseek2` give the logits of the same weights in safetensors.

A small random model is written as float32 safetensors and as GGUF in the forms that converters of
llama.cpp have written: attn_k_b and attn_v_b apart, the former transposed, and attn_kv_b of older
ones. Then files that must be refused: exit code 2, one line and nothing left behind.
"""
import argparse
import json
import random
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
import gguf_files as gguf
import gguf_model
from gguf_convert_test import Tester, changed, relative_error, without

HIDDEN, LAYERS, HEADS, RANK, QUERY_RANK, PLAIN, ROTATED, VALUE = 64, 2, 3, 32, 32, 16, 8, 24
EXPERTS, WIDTH, DENSE, VOCABULARY = 4, 32, 96, 320
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "q_lora_rank": QUERY_RANK,
    "kv_lora_rank": RANK, "qk_nope_head_dim": PLAIN, "qk_rope_head_dim": ROTATED,
    "v_head_dim": VALUE, "n_routed_experts": EXPERTS, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 1.75, "first_k_dense_replace": 1, "intermediate_size": DENSE,
    "moe_intermediate_size": WIDTH, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    "rope_theta": 10000.0, "hidden_act": "silu", "eos_token_id": 256,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                     "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 0.7}}
F32 = 0
A = "deepseek2."


class Model:
    """Tensors under both names: `twin` of transformers, `gguf` of llama.cpp."""

    def __init__(self, legacy):
        self.random = random.Random(5)
        self.twin, self.gguf = {}, []
        self.add("model.embed_tokens.weight", "token_embd.weight", [VOCABULARY, HIDDEN])
        self.add("model.norm.weight", "output_norm.weight", [HIDDEN], 1)
        self.add("lm_head.weight", "output.weight", [VOCABULARY, HIDDEN])
        for layer in range(LAYERS):
            self.add_attention(f"model.layers.{layer}.", f"blk.{layer}.", legacy)
            self.add_network(f"model.layers.{layer}.mlp.", f"blk.{layer}.", layer == 0)

    def values(self, shape, middle=0):
        count = 1
        for length in shape:
            count *= length
        return [middle + self.random.gauss(0, 0.2) for _ in range(count)]

    def keep(self, name, shape, values):
        self.twin[name] = ("F32", shape, struct.pack(f"<{len(values)}f", *values))

    def put(self, name, shape, values):
        self.gguf.append(gguf.Tensor(name, shape[::-1], F32,
                                     struct.pack(f"<{len(values)}f", *values)))

    def add(self, name, other, shape, middle=0):
        values = self.values(shape, middle)
        self.keep(name, shape, values)
        self.put(other, shape, values)

    def add_attention(self, name, block, legacy):
        self.add(name + "input_layernorm.weight", block + "attn_norm.weight", [HIDDEN], 1)
        self.add(name + "post_attention_layernorm.weight", block + "ffn_norm.weight", [HIDDEN], 1)
        name += "self_attn."
        self.add(name + "q_a_proj.weight", block + "attn_q_a.weight", [QUERY_RANK, HIDDEN])
        self.add(name + "q_a_layernorm.weight", block + "attn_q_a_norm.weight", [QUERY_RANK], 1)
        self.add(name + "q_b_proj.weight", block + "attn_q_b.weight",
                 [HEADS * (PLAIN + ROTATED), QUERY_RANK])
        self.add(name + "kv_a_proj_with_mqa.weight", block + "attn_kv_a_mqa.weight",
                 [RANK + ROTATED, HIDDEN])
        self.add(name + "kv_a_layernorm.weight", block + "attn_kv_a_norm.weight", [RANK], 1)
        self.add(name + "o_proj.weight", block + "attn_output.weight", [HIDDEN, HEADS * VALUE])
        rows = PLAIN + VALUE
        up = self.values([HEADS * rows, RANK])
        self.keep(name + "kv_b_proj.weight", [HEADS * rows, RANK], up)
        if legacy:
            self.put(block + "attn_kv_b.weight", [HEADS * rows, RANK], up)
            return
        at = [[up[(h * rows + r) * RANK:][:RANK] for r in range(rows)] for h in range(HEADS)]
        keys = [at[h][r][c] for h in range(HEADS) for c in range(RANK) for r in range(PLAIN)]
        values = [at[h][PLAIN + r][c] for h in range(HEADS) for r in range(VALUE)
                  for c in range(RANK)]
        self.put(block + "attn_k_b.weight", [HEADS, RANK, PLAIN], keys)
        self.put(block + "attn_v_b.weight", [HEADS, VALUE, RANK], values)

    def add_matrices(self, name, block, suffix, width):
        for matrix in ("gate", "up", "down"):
            shape = [HIDDEN, width] if matrix == "down" else [width, HIDDEN]
            self.add(f"{name}{matrix}_proj.weight", f"{block}ffn_{matrix}{suffix}.weight", shape)

    def add_network(self, name, block, is_dense):
        if is_dense:
            self.add_matrices(name, block, "", DENSE)
            return
        self.add(name + "gate.weight", block + "ffn_gate_inp.weight", [EXPERTS, HIDDEN])
        self.add(name + "gate.e_score_correction_bias", block + "exp_probs_b.bias", [EXPERTS])
        self.add_matrices(name + "shared_experts.", block, "_shexp", WIDTH)
        for matrix in ("gate", "up", "down"):
            shape = [HIDDEN, WIDTH] if matrix == "down" else [WIDTH, HIDDEN]
            stacked = []
            for expert in range(EXPERTS):
                values = self.values(shape)
                self.keep(f"{name}experts.{expert}.{matrix}_proj.weight", shape, values)
                stacked += values
            self.put(f"{block}ffn_{matrix}_exps.weight", [EXPERTS, *shape], stacked)


def keys_of(legacy):
    vocabulary = gguf_model.byte_vocabulary(VOCABULARY)
    numbers = {"block_count": LAYERS, "context_length": 4096, "embedding_length": HIDDEN,
               "feed_forward_length": DENSE, "attention.head_count": HEADS,
               "attention.head_count_kv": HEADS if legacy else 1,
               "attention.key_length": PLAIN + ROTATED if legacy else RANK + ROTATED,
               "attention.value_length": VALUE if legacy else RANK,
               "attention.q_lora_rank": QUERY_RANK, "attention.kv_lora_rank": RANK,
               "rope.dimension_count": ROTATED, "expert_count": EXPERTS, "expert_used_count": 2,
               "expert_shared_count": 1, "expert_group_count": 2, "expert_group_used_count": 1,
               "expert_feed_forward_length": WIDTH, "leading_dense_block_count": 1,
               "expert_gating_func": 2, "rope.scaling.original_context_length": 16}
    if not legacy:
        numbers["attention.key_length_mla"] = PLAIN + ROTATED
        numbers["attention.value_length_mla"] = VALUE
    reals = {"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0,
             "expert_weights_scale": 1.75, "rope.scaling.factor": 4.0,
             "rope.scaling.yarn_log_multiplier": 0.07}
    keys = [("general.architecture", gguf.STRING, "deepseek2")]
    keys += [(A + name, gguf.U32, value) for name, value in numbers.items()]
    keys += [(A + name, gguf.F32, value) for name, value in reals.items()]
    return keys + [(A + "expert_weights_norm", gguf.BOOL, 1),
                   (A + "rope.scaling.type", gguf.STRING, "yarn"),
                   ("tokenizer.ggml.model", gguf.STRING, "gpt2"),
                   ("tokenizer.ggml.pre", gguf.STRING, "deepseek-v3"),
                   ("tokenizer.ggml.tokens", (gguf.ARRAY, gguf.STRING),
                    [text for text, _ in vocabulary]),
                   ("tokenizer.ggml.token_type", (gguf.ARRAY, gguf.I32),
                    [kind for _, kind in vocabulary]),
                   ("tokenizer.ggml.merges", (gguf.ARRAY, gguf.STRING), ["h e", "he l"]),
                   ("tokenizer.ggml.eos_token_id", gguf.U32, 256)]


def check_same_logits(test):
    for legacy in (False, True):
        model = Model(legacy)
        twin = test.scratch / f"latent.{legacy}"
        twin.mkdir()
        (twin / "config.json").write_text(json.dumps(CONFIG))
        files.write_tensors(twin / files.SHARD, model.twin)
        path = test.write(f"latent.{legacy}.gguf", keys_of(legacy), model.gguf)
        for source, out in ((twin, "a"), (path, "b")):
            test.succeeds("convert", source, "-o", test.scratch / out, "--quiet")
            test.succeeds("verify", test.scratch / out, "--against", source, "--quiet")
        error = relative_error(test.logits(test.scratch / "b"), test.logits(test.scratch / "a"))
        print(f"legacy {legacy}: relative error {error:.1e}")
        test.check(error == 0, f"legacy {legacy}: logits are off by {error}")
        for out in ("a", "b"):
            shutil.rmtree(test.scratch / out)


def check_refusals(test):
    model, keys = Model(False), keys_of(False)
    path = test.scratch / "bad.gguf"

    def refused(what, bad_keys, tensors, names):
        test.damages += 1
        test.write("bad.gguf", bad_keys, tensors)
        test.expect(what, "convert", path, {2}, ("bad.gguf", *names))

    for name in ("attn_k_b", "attn_v_b"):
        full = f"blk.1.{name}.weight"
        rest = [t for t in model.gguf if t.name != full]
        tensor = next(t for t in model.gguf if t.name == full)
        missing = "attn_kv_b" if name == "attn_k_b" else name
        refused(f"without {name}", keys, rest, (missing,))
        swapped = [tensor.ne[1], tensor.ne[0], tensor.ne[2]]
        refused(f"{name} turned", keys,
                rest + [gguf.Tensor(full, swapped, F32, tensor.data)], (full,))
        refused(f"{name} as I32", keys,
                rest + [gguf.Tensor(full, tensor.ne, 26, tensor.data)], (full,))
    whole = gguf.Tensor("blk.1.attn_kv_b.weight", [RANK, HEADS * (PLAIN + VALUE)], F32,
                        bytes(4 * RANK * HEADS * (PLAIN + VALUE)))
    refused("both forms", keys, model.gguf + [whole], ("blk.1.attn_k",))
    for name in ("attention.kv_lora_rank", "attention.head_count", "expert_gating_func",
                 "rope.dimension_count", "expert_used_count"):
        refused(f"without {name}", without(keys, A + name), model.gguf, (name,))
    for name, value in (("rope.dimension_count", PLAIN + ROTATED), ("rope.dimension_count", 7),
                        ("expert_gating_func", 1), ("attention.key_length_mla", 0),
                        ("attention.kv_lora_rank", 0)):
        refused(f"{name} {value}", changed(keys, A + name, value), model.gguf, (name,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-latent-") as scratch:
        test = Tester(args.program, Path(scratch), 1)
        check_same_logits(test)
        check_refusals(test)
    for failure in test.failures[:30]:
        print("FAILED", failure)
    print(f"{test.damages} damaged models, {len(test.failures)} failures")
    return 1 if test.failures or test.damages < 15 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""OLMoE's forward pass in double precision, in plain Python: logits of a small checkpoint.

usage: olmoe_logits.py CHECKPOINT OUTPUT.f32 [--clip C]

After transformers' modeling_olmoe: RMSNorm of queries and keys over the whole width, then
clip_qkv, then RoPE (pairs i, i + d/2); softmax over all experts, the first K, not renormalised.
"""
import argparse
import array
import json
import math
import struct


def load(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        begin, end = entry["data_offsets"]
        words = array.array("H", data[begin:end])
        floats = array.array("f")
        floats.frombytes(array.array("I", [w << 16 for w in words]).tobytes())
        shape = entry["shape"]
        values = list(floats)
        if len(shape) == 2:
            values = [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
        tensors[name] = values
    return tensors


def times(matrix, x):
    return [math.fsum(a * b for a, b in zip(row, x)) for row in matrix]


def norm(x, weight, eps):
    scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [w * v * scale for w, v in zip(weight, x)]


def rotate(head, position, theta):
    half = len(head) // 2
    out = list(head)
    for i in range(half):
        angle = position * theta ** (-2 * i / len(head))
        c, s = math.cos(angle), math.sin(angle)
        out[i] = head[i] * c - head[i + half] * s
        out[i + half] = head[i + half] * c + head[i] * s
    return out


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    total = math.fsum(e)
    return [v / total for v in e]


def limited(x, clip):
    return x if clip is None else [min(max(v, -clip), clip) for v in x]


def attention(w, at, config, inputs, clip):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    d = config["hidden_size"] // heads
    eps, theta = config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]
    cut = lambda x: [x[i:i + d] for i in range(0, len(x), d)]
    keys, values, outputs = [], [], []
    for position, u in enumerate(inputs):
        q = limited(norm(times(w[at + "q_proj.weight"], u), w[at + "q_norm.weight"], eps), clip)
        k = limited(norm(times(w[at + "k_proj.weight"], u), w[at + "k_norm.weight"], eps), clip)
        values.append(cut(limited(times(w[at + "v_proj.weight"], u), clip)))
        keys.append([rotate(h, position, theta) for h in cut(k)])
        mixed = []
        for h, q_head in enumerate(rotate(x, position, theta) for x in cut(q)):
            g = h // (heads // kv_heads)
            p = softmax([math.fsum(a * b for a, b in zip(q_head, k[g])) / math.sqrt(d)
                         for k in keys])
            mixed += [math.fsum(p[s] * values[s][g][i] for s in range(len(p))) for i in range(d)]
        outputs.append(times(w[at + "o_proj.weight"], mixed))
    return outputs


def experts(w, at, config, u):
    p = softmax(times(w[at + "gate.weight"], u))
    chosen = sorted(range(len(p)), key=lambda e: -p[e])[:config["num_experts_per_tok"]]
    out = [0.0] * len(u)
    for e in chosen:
        name = f"{at}experts.{e}."
        gate = times(w[name + "gate_proj.weight"], u)
        up = times(w[name + "up_proj.weight"], u)
        act = [g / (1 + math.exp(-g)) * v for g, v in zip(gate, up)]
        for i, v in enumerate(times(w[name + "down_proj.weight"], act)):
            out[i] += p[e] * v
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoint")
    parser.add_argument("output")
    parser.add_argument("--clip", type=float)
    arguments = parser.parse_args()
    with open(arguments.checkpoint + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(arguments.checkpoint + "/golden.json", encoding="utf-8") as file:
        ids = json.load(file)["ids"]
    assert not config["norm_topk_prob"]
    w, eps = load(arguments.checkpoint + "/model.safetensors"), config["rms_norm_eps"]
    hidden = [list(w["model.embed_tokens.weight"][i]) for i in ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        inputs = [norm(h, w[at + "input_layernorm.weight"], eps) for h in hidden]
        mixed = attention(w, at + "self_attn.", config, inputs, arguments.clip)
        hidden = [[a + b for a, b in zip(h, m)] for h, m in zip(hidden, mixed)]
        for h in hidden:
            u = norm(h, w[at + "post_attention_layernorm.weight"], eps)
            for i, v in enumerate(experts(w, at + "mlp.", config, u)):
                h[i] += v
    with open(arguments.output, "wb") as file:
        for h in hidden:
            row = times(w["lm_head.weight"], norm(h, w["model.norm.weight"], eps))
            file.write(struct.pack(f"<{len(row)}f", *row))


if __name__ == "__main__":
    main()

"""A Qwen3.5-MoE or Qwen3-Next checkpoint as a GGUF file, written from the description of llama.cpp's converter;
shares no code with the project.

`Model` draws random weights, quantizes the matrices with block formats that differ from tensor to
tensor, and gives the GGUF tensors together with a float32 checkpoint of exactly the decoded values,
in HuggingFace's names and order of V heads.
"""
import math
import random
import struct

import gguf_files as gguf

F32, F16, Q4_0, Q4_1, Q8_0, Q6_K, BF16 = 0, 1, 2, 3, 8, 14, 30
PREFIX = "model.language_model."

# HuggingFace's name below a layer, GGUF's, and the type; None: F32.
RESIDENTS = {
    "input_layernorm.weight": ("attn_norm.weight", None),
    "post_attention_layernorm.weight": ("post_attention_norm.weight", None),
    "linear_attn.in_proj_qkv.weight": ("attn_qkv.weight", Q8_0),
    "linear_attn.in_proj_z.weight": ("attn_gate.weight", Q4_0),
    "linear_attn.in_proj_b.weight": ("ssm_beta.weight", Q8_0),
    "linear_attn.in_proj_a.weight": ("ssm_alpha.weight", BF16),
    "linear_attn.conv1d.weight": ("ssm_conv1d.weight", None),
    "linear_attn.A_log": ("ssm_a", None),
    "linear_attn.dt_bias": ("ssm_dt.bias", None),
    "linear_attn.norm.weight": ("ssm_norm.weight", None),
    "linear_attn.out_proj.weight": ("ssm_out.weight", Q6_K),
    "self_attn.q_proj.weight": ("attn_q.weight", Q4_1),
    "self_attn.k_proj.weight": ("attn_k.weight", Q8_0),
    "self_attn.v_proj.weight": ("attn_v.weight", F16),
    "self_attn.o_proj.weight": ("attn_output.weight", Q8_0),
    "self_attn.q_norm.weight": ("attn_q_norm.weight", None),
    "self_attn.k_norm.weight": ("attn_k_norm.weight", None),
    "mlp.gate.weight": ("ffn_gate_inp.weight", None),
    "mlp.shared_expert_gate.weight": ("ffn_gate_inp_shexp.weight", None),
    "mlp.shared_expert.gate_proj.weight": ("ffn_gate_shexp.weight", Q8_0),
    "mlp.shared_expert.up_proj.weight": ("ffn_up_shexp.weight", Q4_0),
    "mlp.shared_expert.down_proj.weight": ("ffn_down_shexp.weight", Q4_1)}
OUTER = {PREFIX + "embed_tokens.weight": ("token_embd.weight", Q8_0),
         PREFIX + "norm.weight": ("output_norm.weight", None),
         "lm_head.weight": ("output.weight", Q4_1)}
# Types of gate, up and down by layer.
EXPERTS = [(Q4_0, Q4_0, Q8_0), (Q4_1, Q8_0, F16), (Q8_0, Q8_0, Q4_1), (BF16, F16, F32)]


def f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bfloat(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def floats_of(data):
    """The values of bfloat16 numbers."""
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def nibbles(codes):
    """Packs nibbles: byte j holds elements j and j + 16."""
    return bytes(codes[j] | codes[j + 16] << 4 for j in range(16))


def encode_block(kind, x):
    """(bytes, decoded values) of 32 weights; any legal encoding will do."""
    largest = max(map(abs, x)) or 1.0
    if kind == Q8_0:
        d = f16(largest / 127)
        codes = [max(-127, min(127, round(v / d))) for v in x]
        return struct.pack("<e32b", d, *codes), [f32(d * q) for q in codes]
    if kind == Q4_0:
        d = f16(-largest / 8)
        codes = [max(0, min(15, round(v / d) + 8)) for v in x]
        return struct.pack("<e", d) + nibbles(codes), [f32(d * (q - 8)) for q in codes]
    assert kind == Q4_1
    low = f16(min(x))
    d = f16((max(x) - min(x)) / 15) or f16(1e-4)
    codes = [max(0, min(15, round((v - low) / d))) for v in x]
    return struct.pack("<ee", d, low) + nibbles(codes), [f32(f32(d * q) + low) for q in codes]


def random_q6_k(source):
    """A block of 256 random weights: ql, qh, sixteen signed scales, d."""
    low, high = source.randbytes(128), source.randbytes(64)
    scales = [source.randint(-40, 40) for _ in range(16)]
    d = f16(source.uniform(2e-5, 6e-5))
    values = []
    for i in range(256):
        n, r = divmod(i, 128)
        q = low[64 * n + r % 64] >> 4 * (r // 64) & 15
        q |= (high[32 * n + r % 32] >> 2 * (r // 32) & 3) << 4
        values.append(f32(f32(d * scales[i // 16]) * (q - 32)))
    return low + high + struct.pack("<16be", *scales, d), values


def encode(kind, values, source):
    """(bytes, decoded values) of whole rows."""
    if kind in (None, F32):
        return struct.pack(f"<{len(values)}f", *values), values
    if kind == F16:
        return struct.pack(f"<{len(values)}e", *values), [f16(v) for v in values]
    if kind == BF16:
        return bfloat(values), values  # they come from bfloat16
    if kind == Q6_K:
        blocks = [random_q6_k(source) for _ in range(0, len(values), 256)]
    else:
        blocks = [encode_block(kind, values[i:i + 32]) for i in range(0, len(values), 32)]
    return b"".join(b for b, _ in blocks), [v for _, block in blocks for v in block]


class Heads:
    """The order of V heads: HuggingFace's old = g * r + j stands at j * key_heads + g in GGUF."""

    def __init__(self, config):
        self.reorders = config["model_type"] != "qwen3_next"
        self.keys = config["linear_num_key_heads"]
        self.values = config["linear_num_value_heads"]
        self.key_dim = config["linear_key_head_dim"]
        self.dim = config["linear_value_head_dim"]

    def place(self, old):
        ratio = self.values // self.keys
        if not self.reorders:
            return old
        g, j = divmod(old, ratio)
        return j * self.keys + g

    def tiled(self, values, unit):
        """`values` in units of one head each, from HuggingFace's order into GGUF's."""
        out = list(values)
        for old in range(self.values):
            new = self.place(old)
            out[new * unit:(new + 1) * unit] = values[old * unit:(old + 1) * unit]
        return out

    def grouped(self, values, unit):
        out = list(values)
        for old in range(self.values):
            new = self.place(old)
            out[old * unit:(old + 1) * unit] = values[new * unit:(new + 1) * unit]
        return out

    def change(self, name, shape, values, way):
        """`way`: self.tiled or self.grouped."""
        if name.endswith("out_proj.weight"):
            cols = shape[-1]
            return [v for row in range(shape[0])
                    for v in way(values[row * cols:(row + 1) * cols], self.dim)]
        cols = math.prod(shape[1:])
        unit = self.dim if "in_proj_z" in name else 1
        if "in_proj_qkv" in name or "conv1d" in name:
            first = 2 * self.keys * self.key_dim * cols
            return values[:first] + way(values[first:], self.dim * cols)
        return way(values, unit * cols)


    def split_qkvz(self, values, cols):
        """Rows [q all, k all, v all] and [z all] of rows that stand K head by K head."""
        ratio = self.values // self.keys
        sizes = [n * cols for n in (self.key_dim, self.key_dim, ratio * self.dim, ratio * self.dim)]
        parts = [[], [], [], []]
        at = 0
        for _ in range(self.keys):
            for part, size in zip(parts, sizes):
                part += values[at:at + size]
                at += size
        return parts[0] + parts[1] + parts[2], parts[3]

    def join_qkvz(self, qkv, z, cols):
        ratio = self.values // self.keys
        key, value = self.key_dim * cols, ratio * self.dim * cols
        out = []
        for head in range(self.keys):
            out += qkv[head * key:(head + 1) * key]
            out += qkv[(self.keys + head) * key:(self.keys + head + 1) * key]
            start = 2 * self.keys * key + head * value
            out += qkv[start:start + value]
            out += z[head * value:(head + 1) * value]
        return out


REORDERED = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d", "A_log", "dt_bias",
             "out_proj")
PLUS_ONE = ("input_layernorm.weight", "post_attention_layernorm.weight", "norm.weight",
            "q_norm.weight", "k_norm.weight")


def adds_one(name):
    last = name.rsplit(".", 2)[-2] + ".weight"
    return last in PLUS_ONE and "linear_attn.norm" not in name


CONFIG = {"model_type": "qwen3_5_moe_text", "vocab_size": 320, "hidden_size": 64,
          "num_hidden_layers": 5, "num_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 96, "shared_expert_intermediate_size": 32,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
          "linear_num_key_heads": 2, "linear_num_value_heads": 8, "linear_key_head_dim": 32,
          "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
          "layer_types": ["linear_attention"] * 3 + ["full_attention", "linear_attention"],
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 0.25},
          "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
          "max_position_embeddings": 4096, "eos_token_id": 256}


def random_tensors(c, seed=1):
    """{name: (shape, values)} of a model of the configuration `c`, values exact in bfloat16."""
    source = random.Random(seed)
    hidden, width = c["hidden_size"], c["moe_intermediate_size"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    heads = c["num_attention_heads"] * c["head_dim"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    shared = c["shared_expert_intermediate_size"]
    linear = {"in_proj_qkv.weight": [2 * keys + values, hidden],
              "in_proj_z.weight": [values, hidden],
              "in_proj_b.weight": [c["linear_num_value_heads"], hidden],
              "in_proj_a.weight": [c["linear_num_value_heads"], hidden],
              "conv1d.weight": [2 * keys + values, 1, c["linear_conv_kernel_dim"]],
              "A_log": [c["linear_num_value_heads"]], "dt_bias": [c["linear_num_value_heads"]],
              "norm.weight": [c["linear_value_head_dim"]], "out_proj.weight": [hidden, values]}
    if c["model_type"] == "qwen3_next":
        for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"):
            del linear[name + ".weight"]
        linear["in_proj_qkvz.weight"] = [2 * keys + 2 * values, hidden]
        linear["in_proj_ba.weight"] = [2 * c["linear_num_value_heads"], hidden]
    full = {"q_proj.weight": [2 * heads, hidden], "k_proj.weight": [kv, hidden],
            "v_proj.weight": [kv, hidden], "o_proj.weight": [hidden, heads],
            "q_norm.weight": [c["head_dim"]], "k_norm.weight": [c["head_dim"]]}
    common = {"input_layernorm.weight": [hidden], "post_attention_layernorm.weight": [hidden],
              "mlp.gate.weight": [c["num_experts"], hidden],
              "mlp.shared_expert_gate.weight": [1, hidden],
              "mlp.shared_expert.gate_proj.weight": [shared, hidden],
              "mlp.shared_expert.up_proj.weight": [shared, hidden],
              "mlp.shared_expert.down_proj.weight": [hidden, shared],
              "mlp.experts.gate_up_proj": [c["num_experts"], 2 * width, hidden],
              "mlp.experts.down_proj": [c["num_experts"], hidden, width]}
    shapes = {PREFIX + "embed_tokens.weight": [c["vocab_size"], hidden],
              PREFIX + "norm.weight": [hidden], "lm_head.weight": [c["vocab_size"], hidden]}
    for layer, kind in enumerate(c["layer_types"]):
        block = {f"linear_attn.{name}": shape for name, shape in linear.items()}
        if kind == "full_attention":
            block = {f"self_attn.{name}": shape for name, shape in full.items()}
        for name, shape in {**common, **block}.items():
            shapes[f"{PREFIX}layers.{layer}.{name}"] = shape
    tensors = {}
    for name, shape in shapes.items():
        spread = 0.3 if len(shape) == 1 or "conv1d" in name else 1 / math.sqrt(shape[-1])
        data = bfloat(source.gauss(0, spread) for _ in range(math.prod(shape)))
        tensors[name] = (shape, floats_of(data))
    return tensors


class Model:
    def __init__(self, config=None, seed=3, legacy=False, types=None, weights=1):
        """`legacy`: as files made before attn_qkv and attn_gate (qwen3next). `types`: of residents
        that are not as RESIDENTS says. `weights`: the seed of what is quantized."""
        config = config or CONFIG
        self.types = types or {}
        self.legacy = legacy
        self.config = config
        self.heads = Heads(config)
        self.source = random.Random(seed)
        self.gguf = []  # of gguf.Tensor
        self.twin = {}  # name: (dtype, shape, bytes), as checkpoint_files writes them
        for name, (shape, values) in random_tensors(config, weights).items():
            self.add(name, shape, values)

    def keep(self, name, shape, values):
        self.twin[name] = ("F32", shape, struct.pack(f"<{len(values)}f", *values))

    def put(self, name, shape, kind, data):
        self.gguf.append(gguf.Tensor(name, shape[::-1], kind or F32, data))

    def add(self, name, shape, values):
        if name in OUTER:
            target, kind = OUTER[name]
            return self.add_plain(name, target, shape, kind, values)
        layer, rest = name.removeprefix(PREFIX + "layers.").split(".", 1)
        if rest.startswith("mlp.experts."):
            return self.add_experts(name, int(layer), shape, values)
        if rest == "linear_attn.in_proj_qkvz.weight" and not self.legacy:
            return self.add_qkvz(name, layer, shape, values)
        fused = {"linear_attn.in_proj_qkvz.weight": ("ssm_in.weight", Q8_0),
                 "linear_attn.in_proj_ba.weight": ("ssm_ba.weight", Q8_0)}
        if rest in fused:
            return self.add_plain(name, f"blk.{layer}.{fused[rest][0]}", shape, fused[rest][1],
                                  values)
        target, kind = RESIDENTS[rest]
        kind = self.types.get(rest, kind)
        target = f"blk.{layer}.{target}"
        if any(part in rest for part in REORDERED):
            return self.add_reordered(name, target, shape, kind, values)
        return self.add_plain(name, target, shape, kind, values)

    def add_plain(self, name, target, shape, kind, values):
        if adds_one(name):
            self.keep(name, shape, values)
            self.put(target, shape, kind, struct.pack(f"<{len(values)}f",
                                                      *(f32(1 + v) for v in values)))
            return
        data, decoded = encode(kind, values, self.source)
        self.keep(name, shape, decoded)
        self.put(target, shape if "shared_expert_gate" not in name else shape[1:], kind, data)

    def add_qkvz(self, name, layer, shape, values):
        rows, cols = shape
        qkv, z = self.heads.split_qkvz(values, cols)
        decoded = []
        for target, kind, part in (("attn_qkv", Q8_0, qkv), ("attn_gate", Q4_0, z)):
            data, kept = encode(kind, part, self.source)
            decoded.append(kept)
            self.put(f"blk.{layer}.{target}.weight", [len(part) // cols, cols], kind, data)
        self.keep(name, shape, self.heads.join_qkvz(*decoded, cols))

    def add_reordered(self, name, target, shape, kind, values):
        tiled = self.heads.change(name, shape, values, self.heads.tiled)
        if name.endswith("A_log"):
            self.keep(name, shape, values)
            tiled = [f32(-math.exp(v)) for v in tiled]
            self.put(target, shape, kind, struct.pack(f"<{len(tiled)}f", *tiled))
            return
        data, decoded = encode(kind, tiled, self.source)
        self.keep(name, shape, self.heads.change(name, shape, decoded, self.heads.grouped))
        self.put(target, [n for n in shape if n != 1] if "conv1d" in name else shape, kind, data)

    def add_experts(self, name, layer, shape, values):
        gate, up, down = EXPERTS[layer % len(EXPERTS)]
        experts, rows, cols = shape
        if name.endswith("down_proj"):
            data, decoded = encode(down, values, self.source)
            self.keep(name, shape, decoded)
            self.put(f"blk.{layer}.ffn_down_exps.weight", shape, down, data)
            return
        half = rows // 2 * cols
        parts = {gate: [], up: []} if gate != up else None
        if parts is None:  # as one tensor, the rows of gate first
            data, decoded = encode(gate, values, self.source)
            self.keep(name, shape, decoded)
            self.put(f"blk.{layer}.ffn_gate_up_exps.weight", shape, gate, data)
            return
        merged, stacked = [], {"gate": b"", "up": b""}
        for expert in range(experts):
            for which, kind, offset in (("gate", gate, 0), ("up", up, half)):
                begin = expert * 2 * half + offset
                data, decoded = encode(kind, values[begin:begin + half], self.source)
                stacked[which] += data
                merged += decoded
        self.keep(name, shape, merged)
        for which, kind in (("gate", gate), ("up", up)):
            self.put(f"blk.{layer}.ffn_{which}_exps.weight", [experts, rows // 2, cols], kind,
                     stacked[which])

    def keys(self, vocabulary, extra_blocks=0):
        return self.keys_of(self.config, vocabulary, extra_blocks)

    @staticmethod
    def keys_of(c, vocabulary, extra_blocks=0):
        """`vocabulary`: [(token text, type)]."""
        architecture = "qwen3next" if c["model_type"] == "qwen3_next" else "qwen35moe"
        a = architecture + "."
        keys = [("general.architecture", gguf.STRING, architecture),
                ("general.name", gguf.STRING, "tiny"),
                (a + "block_count", gguf.U32, c["num_hidden_layers"] + extra_blocks),
                (a + "context_length", gguf.U32, c["max_position_embeddings"]),
                (a + "embedding_length", gguf.U32, c["hidden_size"]),
                (a + "attention.head_count", gguf.U32, c["num_attention_heads"]),
                (a + "attention.head_count_kv", gguf.U32, c["num_key_value_heads"]),
                (a + "attention.key_length", gguf.U32, c["head_dim"]),
                (a + "attention.value_length", gguf.U32, c["head_dim"]),
                (a + "attention.layer_norm_rms_epsilon", gguf.F32, c["rms_norm_eps"]),
                (a + "rope.freq_base", gguf.F32, c["rope_parameters"]["rope_theta"]),
                (a + "rope.dimension_count", gguf.U32,
                 int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"])),
                (a + "expert_count", gguf.U32, c["num_experts"]),
                (a + "expert_used_count", gguf.U32, c["num_experts_per_tok"]),
                (a + "expert_feed_forward_length", gguf.U32, c["moe_intermediate_size"]),
                (a + "expert_shared_feed_forward_length", gguf.U32,
                 c["shared_expert_intermediate_size"]),
                (a + "ssm.conv_kernel", gguf.U32, c["linear_conv_kernel_dim"]),
                (a + "ssm.state_size", gguf.U32, c["linear_key_head_dim"]),
                (a + "ssm.group_count", gguf.U32, c["linear_num_key_heads"]),
                (a + "ssm.time_step_rank", gguf.U32, c["linear_num_value_heads"]),
                (a + "ssm.inner_size", gguf.U32,
                 c["linear_num_value_heads"] * c["linear_value_head_dim"]),
                (a + "full_attention_interval", gguf.U32, 4)]
        if architecture == "qwen35moe":
            keys.append((a + "rope.dimension_sections", (gguf.ARRAY, gguf.I32), [2, 1, 1, 0]))
        if extra_blocks:
            keys.append((a + "nextn_predict_layers", gguf.U32, extra_blocks))
        keys += [("tokenizer.ggml.model", gguf.STRING, "gpt2"),
                 ("tokenizer.ggml.pre", gguf.STRING,
                  "qwen35" if architecture == "qwen35moe" else "qwen2"),
                 ("tokenizer.ggml.tokens", (gguf.ARRAY, gguf.STRING), [t for t, _ in vocabulary]),
                 ("tokenizer.ggml.token_type", (gguf.ARRAY, gguf.I32), [t for _, t in vocabulary]),
                 ("tokenizer.ggml.merges", (gguf.ARRAY, gguf.STRING), ["h e", "he l"]),
                 ("tokenizer.ggml.eos_token_id", gguf.U32, 256)]
        return keys


def byte_vocabulary(size):
    """GPT-2's byte alphabet, two tokens that are merged, special ones, and padding."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, extra = [], 0
    for byte in range(256):
        if byte in kept:
            letters.append(chr(byte))
        else:
            letters.append(chr(0x100 + extra))
            extra += 1
    tokens = [(letter, 1) for letter in letters]
    tokens += [("<|endoftext|>", 3), ("<|im_start|>", 3), ("he", 1), ("hel", 1)]
    return tokens + [(f"[PAD{i}]", 5) for i in range(len(tokens), size)]


def big_endian(tensor):
    """The same tensor as a big-endian file holds it."""
    blocks = {F32: (4, [(0, 4)]), F16: (2, [(0, 2)]), BF16: (2, [(0, 2)]), Q4_0: (18, [(0, 2)]),
              Q4_1: (20, [(0, 2), (2, 2)]), Q8_0: (34, [(0, 2)]), Q6_K: (210, [(208, 2)])}
    size, fields = blocks[tensor.type]
    out = bytearray(tensor.data)
    for start in range(0, len(out), size):
        for at, width in fields:
            begin = start + at
            out[begin:begin + width] = out[begin:begin + width][::-1]
    return gguf.Tensor(tensor.name, tensor.ne, tensor.type, bytes(out))

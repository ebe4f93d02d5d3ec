"""Models in the files of the flash-moe engines, made from nothing but their description.

Shares no code with the project and reads none of its files but the grid of IQ3_XXS under
tests/golden. A model is random; its experts are made once per format, and each can be had as the
bytes that flash-moe writes and as the floats that those bytes mean.
"""
import array
import json
import random
import struct

GROUP = 64


# ---- numbers -----------------------------------------------------------------------------------

def bf16(value):
    """The two bytes of a float cut to bfloat16."""
    return struct.pack("<f", value)[2:]


def bf16_value(pair):
    return struct.unpack("<f", b"\0\0" + pair)[0]


def f16_value(pair):
    return struct.unpack("<e", pair)[0]


def floats(values):
    """The values as float32 bytes; each value is rounded once."""
    return array.array("f", values).tobytes()


def align(offset, to=64):
    return (offset + to - 1) // to * to


# ---- matrices ----------------------------------------------------------------------------------

class Affine:
    """[rows, cols] of MLX codes: weight, scales and biases as bytes. `half`: scales are F16, as one
    relative of the engines writes them under the same names."""

    def __init__(self, rng, rows, cols, bits, spread=1.0, half=False):
        self.rows, self.cols, self.bits = rows, cols, bits
        self.scale_dtype = "F16" if half else "BF16"
        store = (lambda value: struct.pack("<e", value)) if half else bf16
        groups = rows * cols // GROUP
        top = spread * 1.7 / cols ** 0.5
        self.codes = rng.randbytes(rows * cols * bits // 8)
        steps = (1 << bits) - 1
        scales, biases = [], []
        for _ in range(groups):
            width = top * (0.5 + rng.random())
            sign = rng.choice((-1, 1))  # MLX's scales may be negative
            scales.append(store(sign * 2 * width / steps))
            biases.append(store(-sign * width))
        self.scales, self.biases = b"".join(scales), b"".join(biases)

    def components(self):
        words = self.cols * self.bits // 32
        groups = self.cols // GROUP
        return [("weight", "U32", [self.rows, words], self.codes),
                ("scales", self.scale_dtype, [self.rows, groups], self.scales),
                ("biases", self.scale_dtype, [self.rows, groups], self.biases)]

    def decoded(self):
        """code * scale + bias, each operation rounded to float32; 2, 4 or 8 bits."""
        out = array.array("f")
        count, mask = 1 << self.bits, (1 << self.bits) - 1
        shifts = range(0, 8, self.bits)
        step = GROUP * self.bits // 8
        value_of = f16_value if self.scale_dtype == "F16" else bf16_value
        for g in range(len(self.scales) // 2):
            scale = value_of(self.scales[2 * g:2 * g + 2])
            bias = value_of(self.biases[2 * g:2 * g + 2])
            products = array.array("f", [code * scale for code in range(count)])
            values = array.array("f", [product + bias for product in products])
            group = self.codes[g * step:(g + 1) * step]
            out.extend([values[(byte >> s) & mask] for byte in group for s in shifts])
        return out.tobytes()


class Plain:
    def __init__(self, rng, shape, dtype="BF16", center=0.0, spread=1.0):
        self.shape, self.dtype = shape, dtype
        count = 1
        for dimension in shape:
            count *= dimension
        values = [center + spread * (2 * rng.random() - 1) for _ in range(count)]
        self.bytes = (b"".join(map(bf16, values)) if dtype == "BF16" else floats(values))

    def components(self):
        return [("weight", self.dtype, self.shape, self.bytes)]


def random_half(rng, size):
    return struct.pack("<e", size * (0.25 + rng.random()) * rng.choice((-1, 1)))


def even_signs(seven):
    return seven | (bin(seven).count("1") % 2) << 7


class Blocks:
    """[rows, cols] of ggml's blocks of 256: random bytes with sane scales."""

    BYTES = {"IQ3_XXS": 98, "IQ4_XS": 136, "Q5_K": 176}
    SIZES = {"IQ3_XXS": 2e-4, "IQ4_XS": 3e-5, "Q5_K": 4e-5}  # of d, for weights about 1/sqrt(512)
    VALUES = (4, 12, 20, 28, 36, 44, 52, 62)
    TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

    def __init__(self, rng, rows, cols, kind, grid):
        self.rows, self.cols, self.kind, self.grid = rows, cols, kind, grid
        size = self.BYTES[kind]
        parts = []
        for _ in range(rows * cols // 256):
            head = random_half(rng, self.SIZES[kind])
            if kind == "Q5_K":
                head += random_half(rng, self.SIZES[kind] * 16)
            parts.append(head + rng.randbytes(size - len(head)))
        self.bytes = b"".join(parts)

    def decoded(self):
        decode = {"IQ3_XXS": self._iq3, "IQ4_XS": self._iq4, "Q5_K": self._q5}[self.kind]
        size = self.BYTES[self.kind]
        out = array.array("f")
        for at in range(0, len(self.bytes), size):
            out.extend(decode(self.bytes[at:at + size]))
        return out.tobytes()

    def _iq3(self, block):
        d = f16_value(block[:2])
        values = []
        for sub in range(8):
            (word,) = struct.unpack_from("<I", block, 66 + 4 * sub)
            scale = d * (0.5 + (word >> 28)) * 0.5
            for eight in range(4):
                signs = even_signs((word >> 7 * eight) & 127)
                for j in range(8):
                    entry = self.grid[block[2 + 8 * sub + 2 * eight + j // 4]]
                    value = scale * self.VALUES[(entry >> 3 * (j % 4)) & 7]
                    values.append(-value if signs >> j & 1 else value)
        return values

    def _iq4(self, block):
        d, high = f16_value(block[:2]), struct.unpack_from("<H", block, 2)[0]
        values = []
        for sub in range(8):
            low = block[4 + sub // 2] >> 4 * (sub % 2) & 15
            scale = d * ((low | (high >> 2 * sub & 3) << 4) - 32)
            nibbles = block[8 + 16 * sub:24 + 16 * sub]
            values += [scale * self.TABLE[b & 15] for b in nibbles]
            values += [scale * self.TABLE[b >> 4] for b in nibbles]
        return values

    def _q5(self, block):
        d, dmin = f16_value(block[:2]), f16_value(block[2:4])
        q = block[4:16]
        values = []
        for sub in range(8):
            if sub < 4:
                scale, low = q[sub] & 63, q[sub + 4] & 63
            else:
                scale = q[sub + 4] & 15 | (q[sub - 4] >> 6) << 4
                low = q[sub + 4] >> 4 | (q[sub] >> 6) << 4
            for i in range(32):
                nibble = block[48 + sub // 2 * 32 + i] >> 4 * (sub % 2) & 15
                code = nibble | (block[16 + i] >> sub & 1) << 4
                values.append(d * scale * code - dmin * low)
        return values


# ---- the model ---------------------------------------------------------------------------------

class Model:
    HIDDEN, WIDTH, SHARED, VOCAB = 512, 256, 128, 320
    LAYERS, EXPERTS, TOP = 2, 3, 2
    HEADS, KV_HEADS, HEAD_DIM = 2, 1, 64
    LINEAR_K, LINEAR_V, LINEAR_DIM, TAPS = 1, 2, 64, 4

    def __init__(self, grid):
        self.grid = grid
        rng = random.Random(20260321)
        self.residents = self._residents(rng)
        self.q4 = self._experts(rng, lambda layer, proj, r, c: Affine(rng, r, c, 4))
        self.q2 = self._experts(rng, lambda layer, proj, r, c: Affine(rng, r, c, 2))
        self.half = self._experts(rng, lambda layer, proj, r, c: Affine(rng, r, c, 4, half=True))
        self.q3 = self._experts(rng, lambda layer, proj, r, c:
                                Blocks(rng, r, c, self.q3_kind(layer, proj), grid))
        # Which experts of which layer a tiered pack holds at four bits.
        self.hot = {0: [1], 1: [0, 2]}

    @staticmethod
    def q3_kind(layer, projection):
        outlier = layer == 1
        if projection == "down_proj":
            return "Q5_K" if outlier else "IQ4_XS"
        return "IQ4_XS" if outlier else "IQ3_XXS"

    def shape(self, projection):
        return (self.HIDDEN, self.WIDTH) if projection == "down_proj" else (self.WIDTH, self.HIDDEN)

    def _experts(self, rng, make):
        """{(layer, expert): {projection: matrix}}"""
        return {(layer, expert): {p: make(layer, p, *self.shape(p))
                                  for p in ("gate_proj", "up_proj", "down_proj")}
                for layer in range(self.LAYERS) for expert in range(self.EXPERTS)}

    def tiered(self):
        return {key: (self.q4 if key[1] in self.hot[key[0]] else self.q2)[key] for key in self.q4}

    def _residents(self, rng):
        """{canonical module: matrix}; layer 0 is linear attention, layer 1 full."""
        h = self.HIDDEN
        modules = {"model.embed_tokens": Affine(rng, self.VOCAB, h, 4, 20.0),
                   "model.norm": Plain(rng, [h], center=1, spread=0.25),
                   "lm_head": Affine(rng, self.VOCAB, h, 4)}
        channels = (2 * self.LINEAR_K + self.LINEAR_V) * self.LINEAR_DIM
        for layer in range(self.LAYERS):
            at = f"model.layers.{layer}."
            for norm in ("input_layernorm", "post_attention_layernorm"):
                modules[at + norm] = Plain(rng, [h], center=1, spread=0.25)
            modules[at + "mlp.gate"] = Affine(rng, self.EXPERTS, h, 8)
            modules[at + "mlp.shared_expert_gate"] = Affine(rng, 1, h, 8)
            for p in ("gate_proj", "up_proj"):
                modules[at + "mlp.shared_expert." + p] = Affine(rng, self.SHARED, h, 4)
            modules[at + "mlp.shared_expert.down_proj"] = Affine(rng, h, self.SHARED, 4)
        at = "model.layers.0.linear_attn."
        values = self.LINEAR_V * self.LINEAR_DIM
        modules[at + "in_proj_qkv"] = Affine(rng, channels, h, 4)
        modules[at + "in_proj_z"] = Affine(rng, values, h, 4)
        modules[at + "in_proj_b"] = Plain(rng, [self.LINEAR_V, h], spread=0.05)
        modules[at + "in_proj_a"] = Affine(rng, self.LINEAR_V, h, 4)
        modules[at + "out_proj"] = Affine(rng, h, values, 4)
        modules[at + "conv1d"] = Plain(rng, [channels, self.TAPS, 1], spread=0.5)
        modules[at + "norm"] = Plain(rng, [self.LINEAR_DIM], center=1, spread=0.25)
        modules[at + "A_log"] = Plain(rng, [self.LINEAR_V], "F32", 1.0, 1.0)
        modules[at + "dt_bias"] = Plain(rng, [self.LINEAR_V])
        at = "model.layers.1.self_attn."
        queries = self.HEADS * self.HEAD_DIM
        modules[at + "q_proj"] = Affine(rng, 2 * queries, h, 4)
        modules[at + "k_proj"] = Affine(rng, self.KV_HEADS * self.HEAD_DIM, h, 4)
        modules[at + "v_proj"] = Affine(rng, self.KV_HEADS * self.HEAD_DIM, h, 4)
        modules[at + "o_proj"] = Affine(rng, h, queries, 4)
        modules[at + "q_norm"] = Plain(rng, [self.HEAD_DIM], center=1, spread=0.25)
        modules[at + "k_norm"] = Plain(rng, [self.HEAD_DIM], center=1, spread=0.25)
        return modules

    def resident_tensors(self):
        """[(name, dtype, shape, bytes)] under canonical names."""
        tensors = []
        for name, matrix in self.residents.items():
            for part, dtype, shape, data in matrix.components():
                bare = name.endswith(("A_log", "dt_bias"))
                tensors.append((name if bare else f"{name}.{part}", dtype, shape, data))
        return tensors

    # ---- the checkpoint that moepack converts ----

    def config(self, expert_bits=4):
        quantization = {"group_size": GROUP, "bits": 4, "mode": "affine"}
        for layer in range(self.LAYERS):
            at = f"language_model.model.layers.{layer}.mlp."
            for module in ("gate", "shared_expert_gate"):
                quantization[at + module] = {"group_size": GROUP, "bits": 8}
            for p in ("gate_proj", "up_proj", "down_proj"):
                quantization[at + "switch_mlp." + p] = {"group_size": GROUP, "bits": expert_bits}
        text = {
            "model_type": "qwen3_5_moe_text", "hidden_size": self.HIDDEN, "vocab_size": self.VOCAB,
            "num_hidden_layers": self.LAYERS, "layer_types": ["linear_attention", "full_attention"],
            "num_attention_heads": self.HEADS, "num_key_value_heads": self.KV_HEADS,
            "head_dim": self.HEAD_DIM, "num_experts": self.EXPERTS,
            "num_experts_per_tok": self.TOP, "moe_intermediate_size": self.WIDTH,
            "shared_expert_intermediate_size": self.SHARED,
            "linear_num_key_heads": self.LINEAR_K, "linear_num_value_heads": self.LINEAR_V,
            "linear_key_head_dim": self.LINEAR_DIM, "linear_value_head_dim": self.LINEAR_DIM,
            "linear_conv_kernel_dim": self.TAPS, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512, "tie_word_embeddings": False, "hidden_act": "silu",
            "rope_parameters": {"rope_theta": 100000.0, "partial_rotary_factor": 0.25,
                                "rope_type": "default"}}
        return {"model_type": "qwen3_5_moe", "tie_word_embeddings": False, "text_config": text,
                "quantization": quantization}

    def write_checkpoint(self, directory, experts, expert_bits=None):
        """Writes MLX's form. Experts are stacked codes of `expert_bits`, with None float32."""
        tensors = [("language_model." + name, *rest) for name, *rest in self.resident_tensors()]
        for layer in range(self.LAYERS):
            for p in ("gate_proj", "up_proj", "down_proj"):
                at = f"language_model.model.layers.{layer}.mlp.switch_mlp.{p}."
                stack = [experts[layer, e][p] for e in range(self.EXPERTS)]
                if expert_bits is None:
                    data = b"".join(matrix.decoded() for matrix in stack)
                    tensors.append((at + "weight", "F32", [self.EXPERTS, *self.shape(p)], data))
                    continue
                for parts in zip(*(matrix.components() for matrix in stack)):
                    name, dtype, shape, _ = parts[0]
                    data = b"".join(part[3] for part in parts)
                    tensors.append((at + name, dtype, [self.EXPERTS, *shape], data))
        config = self.config(expert_bits or 4)
        if expert_bits is None:
            config["quantization"] = {k: v for k, v in config["quantization"].items()
                                      if "switch_mlp" not in k}
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config))
        write_safetensors(directory / "model.safetensors", tensors)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, dtype, shape, data in sorted(tensors):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in sorted(tensors):
            file.write(data)


# ---- flash-moe's files -------------------------------------------------------------------------

def affine_record(expert):
    """Bytes of a record, and its components as (name, dtype, shape, size)."""
    data, components = b"", []
    for p in ("gate_proj", "up_proj", "down_proj"):
        for part, dtype, shape, part_data in expert[p].components():
            components.append((f"{p}.{part}", dtype, shape, len(part_data)))
            data += part_data
    return data, components


def component_list(components, *keys):
    """The entries of "components" with `keys` out of dtype, shape besides name, offset, size."""
    entries, offset = [], 0
    for name, dtype, shape, size in components:
        entry = {"name": name, "offset": offset, "size": size}
        entry.update({k: v for k, v in (("dtype", dtype), ("shape", shape)) if k in keys})
        entries.append(entry)
        offset += size
    return entries


def write_layers(model, directory, record_of):
    """layer_NN.bin of back-to-back records; returns the sizes of each layer's records."""
    directory.mkdir(parents=True)
    sizes = []
    for layer in range(model.LAYERS):
        records = [record_of(layer, e) for e in range(model.EXPERTS)]
        (directory / f"layer_{layer:02d}.bin").write_bytes(b"".join(records))
        sizes.append([len(record) for record in records])
    return sizes


def write_uniform(model, directory, experts, variant):
    """Writes a uniform pack. `variant`: "a" and "b" have a layout.json, None has none."""
    write_layers(model, directory, lambda layer, e: affine_record(experts[layer, e])[0])
    if variant is None:
        return
    data, components = affine_record(experts[0, 0])
    keys = ("dtype", "shape") if variant == "a" else ()
    (directory / "layout.json").write_text(json.dumps(
        {"expert_size": len(data), "num_layers": model.LAYERS, "num_experts": model.EXPERTS,
         "components": component_list(components, *keys)}))


def write_tiered(model, directory, form, absent_layer=None):
    """form: "dict" as repack_experts_tiered.py, "list" as cloud_repack, with its layout.json.
    `absent_layer` holds four bits throughout and is left out of the manifest."""
    experts = model.tiered()
    if absent_layer is not None:
        experts.update({k: v for k, v in model.q4.items() if k[0] == absent_layer})
    sizes = write_layers(model, directory, lambda layer, e: affine_record(experts[layer, e])[0])
    layers = {}
    for layer in range(model.LAYERS):
        entries, offset = [], 0
        for e, size in enumerate(sizes[layer]):
            bits = experts[layer, e]["gate_proj"].bits
            entries.append({"offset": offset, "size": size, "bits": bits})
            offset += size
        if layer != absent_layer:
            layers[str(layer)] = ({"experts": entries, "file_size": offset} if form == "dict"
                                  else entries)
    q4, components4 = affine_record(model.q4[0, 0])
    q2, components2 = affine_record(model.q2[0, 0])
    common = {"expert_size_4bit": len(q4), "expert_size_2bit": len(q2),
              "num_layers": model.LAYERS, "num_experts": model.EXPERTS}
    more = ({"threshold": None, "gptq_source": None} if form == "dict" else
            {"hot_ratio": 0.2, "hot_set": {str(k): v for k, v in model.hot.items()}})
    (directory / "tiered_manifest.json").write_text(json.dumps(
        {**common, **more, "layers": layers}))
    if form == "list":
        (directory / "layout.json").write_text(json.dumps(
            {**common, "tiered": True, "hot_ratio": 0.2,
             "components_4bit": component_list(components4),
             "components_2bit": component_list(components2)}))
    return experts


def write_q3(model, directory):
    def record(layer, e):
        return b"".join(model.q3[layer, e][p].bytes for p in ("gate_proj", "up_proj", "down_proj"))

    def description(layer):
        entries, offset = [], 0
        for p in ("gate_proj", "up_proj", "down_proj"):
            matrix = model.q3[layer, 0][p]
            entries.append({"name": p + ".weight", "quant": matrix.kind, "offset": offset,
                            "size": len(matrix.bytes)})
            offset += len(matrix.bytes)
        return {"expert_size": offset, "components": entries}

    write_layers(model, directory, record)
    (directory / "layout.json").write_text(json.dumps(
        {"format": "q3_streamed_experts", "default_format": "q3_gguf_iq3_xxs_iq4_xs",
         "num_experts": model.EXPERTS, **description(0),
         "outlier_layers": {"1": {"format": "q3_outlier_iq4_xs_q5_k", **description(1)}}}))


def write_abandoned_q3(model, directory, with_q3_manifest):
    """IQ3_XXS gate and up with MLX's four bits for down, under the names of today's Q3."""
    def record(layer, e):
        blocks, affine = model.q3[0, e], model.q4[layer, e]["down_proj"]
        return (blocks["gate_proj"].bytes + blocks["up_proj"].bytes
                + b"".join(part[3] for part in affine.components()))
    write_layers(model, directory, record)
    if with_q3_manifest:  # today's manifest beside yesterday's files
        write_q3(model, directory.parent / "q3-for-its-manifest")
        (directory.parent / "q3-for-its-manifest" / "layout.json").rename(directory / "layout.json")


def write_lz4(model, directory, experts):
    """Index and blobs; stored raw, which flash-moe allows where the sizes are equal."""
    directory.mkdir(parents=True)
    for layer in range(model.LAYERS):
        index, blobs = b"", b""
        for e in range(model.EXPERTS):
            blob = affine_record(experts[layer, e])[0]
            index += struct.pack("<QII", 16 * model.EXPERTS + len(blobs), len(blob), len(blob))
            blobs += blob
        (directory / f"layer_{layer:02d}.bin").write_bytes(index + blobs)


def write_residents(model, directory, *, split=0, first_chunk="model_weights.bin", conv_rank=3):
    """model_weights.json and its data. `split`: chunks; `first_chunk`: what the first is called on
    disk (the manifest always says model_weights.bin)."""
    tensors = model.resident_tensors()
    rng = random.Random(7)
    tensors.append(("mtp.fc.weight", "BF16", [8, 1024], rng.randbytes(16384)))
    tensors.append(("vision_tower.patch_embed.weight", "F32", [3, 5], rng.randbytes(60)))
    entries, offset, pieces = {}, 0, []
    for name, dtype, shape, data in sorted(tensors):
        if name.endswith("conv1d.weight") and conv_rank == 2:
            shape = shape[:2]
        offset = align(offset)
        entries[name] = {"offset": offset, "size": len(data), "shape": shape, "dtype": dtype}
        pieces.append((offset, data))
        offset += len(data)
    manifest = {"model": "flash", "num_tensors": len(entries), "tensors": entries,
                # As the tools write it: another model's numbers.
                "config": {"hidden_size": 4096, "num_hidden_layers": 60, "num_experts": 512,
                           "layer_types": ["linear_attention"] * 60}}
    begins = [0]
    if split:
        for start, _ in pieces:
            if len(begins) < split and start >= offset * len(begins) // split:
                begins.append(start)
        names = ["model_weights.bin"] + [f"model_weights_{i}.bin" for i in range(1, len(begins))]
        manifest["split"] = {"num_chunks": len(begins), "chunk_files": names,
                             "split_offsets": begins}
    for i, begin in enumerate(begins):
        end = begins[i + 1] if i + 1 < len(begins) else offset
        data = bytearray()
        for start, piece in pieces:
            if begin <= start < end:
                data.extend(bytes(start - begin - len(data)) + piece)
        name = first_chunk if i == 0 else f"model_weights_{i}.bin"
        (directory / name).write_bytes(bytes(data))
    (directory / "model_weights.json").write_text(json.dumps(manifest))

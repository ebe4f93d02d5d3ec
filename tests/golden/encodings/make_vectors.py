#!/usr/bin/env python3
"""Small matrices in every encoding of checkpoints, with the float32 values that they mean.

    make_vectors.py > vectors.json

Written from the encodings' definitions in NumPy, apart from the reader that is tested: codes are
drawn, and packed and decoded here in ways that share nothing with it (Python integers of any size
as streams of bits). Needs NumPy.
"""
import json
import random

import numpy as np

F = np.float32
RANDOM = random.Random(21)
NUMPY = np.random.default_rng(21)
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], F)
CASES = []


def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    size = mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return F(-size if sign else size)


def e8m0(code):
    return F(2.0 ** (code - 127))


def bf16(values):
    """Rounded to bfloat16: the stored 16 bits and what they mean."""
    bits = np.asarray(values, F).view(np.uint32)
    bits = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(F)


def scales(shape, kind):
    """(stored bytes, dtype, float32 values)"""
    values = NUMPY.uniform(0.01, 0.1, shape).astype(F)
    if kind == "F32":
        return values.tobytes(), kind, values
    if kind == "F16":
        half = values.astype(np.float16)
        return half.tobytes(), kind, half.astype(F)
    if kind == "BF16":
        bits, wide = bf16(values)
        return bits.tobytes(), kind, wide.reshape(shape)
    codes = NUMPY.integers(118, 130, shape)
    return codes.astype(np.uint8).tobytes(), "F8_E8M0" if kind == "E8M0" else "U8", \
        np.vectorize(e8m0)(codes).astype(F)


def stream(codes, bits, words=None):
    """Codes one after the other from the lowest bit on, in whole 32-bit words."""
    number = sum(int(code) << bits * i for i, code in enumerate(codes))
    words = words or -(-len(codes) * bits // 32)
    return number.to_bytes(4 * words, "little")


def with_gaps(codes, bits):
    """As many whole codes as fit in each 32-bit word."""
    per = 32 // bits
    return b"".join(stream(codes[i:i + per], bits, 1) for i in range(0, len(codes), per))


def columns(words):
    """Rows of words, one for each column, as a matrix of words [words, columns]."""
    return np.array([np.frombuffer(w, np.uint32) for w in words]).T.copy().tobytes()


def tensor(name, dtype, shape, data):
    return {"name": name, "dtype": dtype, "shape": list(shape), "hex": bytes(data).hex()}


def case(name, declared, shape, tensors, values, stored):
    values = np.asarray(values, F)
    CASES.append({"name": name, "config": declared, "shape": list(shape), "tensors": tensors,
                  "stored": stored, "f32": values.tobytes().hex()})


def method(name, **more):
    return {"quantization_config": {"quant_method": name, **more}}


def compressed(form, bits, kind="int", **more):
    return method("compressed-tensors", format=form, config_groups={
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": bits, "type": kind, **more}}})


def number_codes(rows, cols):
    """E4M3 codes of numbers."""
    codes = NUMPY.integers(0, 256, (rows, cols))
    return np.where((codes & 127) == 127, codes - 1, codes)


def grid(values, rows, cols, shape):
    return np.array([[values[r // rows, c // cols] for c in range(shape[1])]
                     for r in range(shape[0])], F)


def fp8(name, rows, cols, block, kind, stored, tail=None, declared=None, suffix="weight_scale_inv"):
    codes = number_codes(rows, cols)
    size = (-(-rows // block[0]), -(-cols // block[1]))
    data, dtype, values = scales(size, kind)
    wide = np.vectorize(e4m3)(codes).astype(F)
    case(name, declared or method("fp8", weight_block_size=list(block)), (rows, cols),
         [tensor("m.weight", "F8_E4M3", (rows, cols), codes.astype(np.uint8).tobytes()),
          tensor("m." + suffix, dtype, size if tail is None else tail, data)],
         wide * grid(values, *block, (rows, cols)), stored)


def int8(name, rows, cols, kind, zeros, stored):
    codes = NUMPY.integers(-128, 128, (rows, cols))
    data, dtype, values = scales((rows, 1), kind)
    tensors = [tensor("m.weight", "I8", (rows, cols), codes.astype(np.int8).tobytes()),
               tensor("m.weight_scale", dtype, (rows, 1), data)]
    middle = np.zeros((rows, 1), np.int64)
    if zeros:
        middle = NUMPY.integers(-128, 128, (rows, 1))
        tensors.append(tensor("m.weight_zero_point", "I8", (rows, 1),
                              middle.astype(np.int8).tobytes()))
    case(name, compressed("int-quantized", 8), (rows, cols), tensors,
         (codes - middle).astype(F) * values, stored)


def packed(name, rows, cols, bits, group, kind, stored, zeros=False, gaps=False, order=False):
    pack = (lambda codes: with_gaps(codes, bits)) if gaps else (lambda codes: stream(codes, bits))
    codes = NUMPY.integers(0, 2 ** bits, (rows, cols))
    groups = cols // group
    data, dtype, values = scales((rows, groups), kind)
    words = len(pack(codes[0])) // 4
    tensors = [tensor("m.weight_packed", "I32", (rows, words), b"".join(map(pack, codes))),
               tensor("m.weight_scale", dtype, (rows, groups), data),
               tensor("m.weight_shape", "I64", (2,), np.array([rows, cols], np.int64).tobytes())]
    middle = np.full((rows, groups), 2 ** (bits - 1))
    if zeros:
        middle = NUMPY.integers(0, 2 ** bits, (rows, groups))
        along = [pack(middle[:, g]) for g in range(groups)]
        tensors.append(tensor("m.weight_zero_point", "I32", (len(along[0]) // 4, groups),
                              columns(along)))
    places = np.arange(cols) // group
    if order:
        places = NUMPY.permutation(places)
        tensors.append(tensor("m.weight_g_idx", "I32", (cols,), places.astype(np.int32).tobytes()))
    case(name, compressed("pack-quantized", bits, group_size=group), (rows, cols), tensors,
         (codes - middle[:, places]).astype(F) * values[:, places], stored)


def nibbles(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8).tobytes()


def mxfp4(name, declared, codes_name, scales_name, shape, stored, words=None):
    codes = NUMPY.integers(0, 16, shape)
    groups = (*shape[:-1], shape[-1] // 32)
    data, dtype, values = scales(groups, "U8")
    size = words if words is not None else (*shape[:-1], shape[-1] // 2)
    case(name, declared, shape,
         [tensor(codes_name, "U32" if words is not None and len(words) == len(shape) else "U8",
                 size, nibbles(codes)),
          tensor(scales_name, dtype, groups, data)],
         E2M1[codes] * np.repeat(values, 32, -1), stored)


def nvfp4(name, declared, names, shape, stored, rule=None, words=False, minus_zero=True):
    codes = NUMPY.integers(0, 16, shape)
    groups = (*shape[:-1], shape[-1] // 16)
    scale_codes = NUMPY.integers(0x20, 0x7f, groups)
    values = np.vectorize(e4m3)(scale_codes).astype(F)
    tensors = [tensor(names[0], "U32" if words else "U8",
                      (*shape[:-1], shape[-1] // (8 if words else 2)), nibbles(codes)),
               tensor(names[1], "U8" if words else "F8_E4M3", groups,
                      scale_codes.astype(np.uint8).tobytes())]
    if rule is not None:
        count = shape[0] if len(shape) == 3 else 1
        factor = NUMPY.uniform(0.001, 0.01, count).astype(F)
        if rule == "divide":
            factor = F(1) / factor
        size = () if names[2].endswith("scale_2") else (count,)
        tensors.append(tensor(names[2], "F32", size, factor.tobytes()))
        wide = factor.reshape(-1, 1, 1) if len(shape) == 3 else factor[0]
        values = {"multiply": lambda: values * wide, "divide": lambda: values / wide,
                  "mlx": lambda: values * (wide / F(2688))}[rule]()
    table = E2M1.copy()
    if not minus_zero:
        table[8] = 0
    case(name, declared, shape, tensors, table[codes] * np.repeat(values.astype(F), 16, -1), stored)


def gptq(name, rows, cols, bits, group, stored, version, sym=False, order=False, g_idx=True):
    groups = -(-cols // group)
    codes = NUMPY.integers(0, 2 ** bits, (rows, cols))
    less = 1 if version == "gptq" else 0
    zeros = np.full((groups, rows), 2 ** (bits - 1) - less)
    if not sym:
        zeros = NUMPY.integers(0, 2 ** bits, (groups, rows))
    data, dtype, values = scales((groups, rows), "F16")
    along = [stream(codes[r], bits) for r in range(rows)]
    zero_words = b"".join(stream(zeros[g], bits) for g in range(groups))
    places = np.arange(cols) // group
    if order:
        places = NUMPY.permutation(places)
    tensors = [tensor("m.qweight", "I32", (len(along[0]) // 4, rows), columns(along)),
               tensor("m.qzeros", "I32", (groups, len(zero_words) // 4 // groups), zero_words),
               tensor("m.scales", dtype, (groups, rows), data)]
    if g_idx:
        tensors.append(tensor("m.g_idx", "I32", (cols,), places.astype(np.int32).tobytes()))
    declared = method("gptq", bits=bits, group_size=group, sym=sym, desc_act=order)
    if version != "gptq":
        declared["quantization_config"]["checkpoint_format"] = version
    case(name, declared, (rows, cols), tensors,
         values[places].T * (codes - (zeros + less)[places].T).astype(F), stored)


def awq(name, rows, cols, group):
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(values):
        return b"".join(stream([row[8 * w + order[n]] for n in range(8)], 4)
                        for row in values for w in range(len(row) // 8))
    codes = NUMPY.integers(0, 16, (cols, rows))
    zeros = NUMPY.integers(0, 16, (cols // group, rows))
    data, dtype, values = scales((cols // group, rows), "F16")
    case(name, method("awq", version="gemm", bits=4, group_size=group, zero_point=True),
         (rows, cols), [tensor("m.qweight", "I32", (cols, rows // 8), pack(codes)),
                        tensor("m.qzeros", "I32", (cols // group, rows // 8), pack(zeros)),
                        tensor("m.scales", dtype, (cols // group, rows), data)],
         ((codes - np.repeat(zeros, group, 0)).astype(F) * np.repeat(values, group, 0)).T, "f32")


def mxfp8(name, rows, cols):
    codes = number_codes(rows, cols)
    data, dtype, values = scales((rows, cols // 32), "U8")
    case(name, {"quantization": {"mode": "mxfp8"}}, (rows, cols),
         [tensor("m.weight", "U32", (rows, cols // 4), codes.astype(np.uint8).tobytes()),
          tensor("m.scales", dtype, (rows, cols // 32), data)],
         np.vectorize(e4m3)(codes).astype(F) * np.repeat(values, 32, 1), "mxfp8")


def affine(name, rows, cols, bits, group):
    codes = NUMPY.integers(0, 2 ** bits, (rows, cols))
    tensors = [tensor("m.weight", "U32", (rows, cols * bits // 32),
                      b"".join(stream(row, bits) for row in codes))]
    parts = []
    for suffix in ("scales", "biases"):
        data, dtype, values = scales((rows, cols // group), "BF16")
        tensors.append(tensor("m." + suffix, dtype, (rows, cols // group), data))
        parts.append(np.repeat(values, group, 1))
    case(name, {"quantization": {"bits": bits, "group_size": group}}, (rows, cols), tensors,
         codes.astype(F) * parts[0] + parts[1], f"q{bits} g{group}")


def main():
    fp8("fp8 blocks, cut off at the edges", 5, 7, (2, 3), "F32", "f32")
    fp8("fp8 blocks, bf16 scales, kept", 3, 256, (2, 128), "BF16", "f8_e4m3")
    fp8("fp8 blocks, powers of two, kept", 3, 128, (2, 64), "E8M0", "f32")
    ct8 = compressed("float-quantized", 8, "float")
    fp8("fp8 rows", 4, 6, (1, 6), "BF16", "f32", None, ct8, "weight_scale")
    fp8("fp8 rows, kept", 4, 128, (1, 128), "BF16", "f8_e4m3", (4,), ct8, "weight_scale")
    fp8("fp8 groups", 4, 96, (1, 32), "F16", "f32", None,
        compressed("float-quantized", 8, "float", group_size=32), "weight_scale")
    fp8("fp8 whole, one number", 4, 128, (4, 128), "F32", "f8_e4m3", (1,), ct8, "weight_scale")
    fp8("fp8 whole, no dimension", 3, 5, (3, 5), "F32", "f32", (),
        method("modelopt", quant_algo="FP8"), "weight_scale")
    int8("int8 rows", 3, 64, "BF16", False, "q8 g64")
    int8("int8 rows of wide scales", 3, 64, "F32", False, "f32")
    int8("int8 rows that no group divides", 3, 40, "BF16", False, "f32")
    int8("int8 with zeros", 5, 64, "BF16", True, "f32")
    packed("packed int4", 3, 64, 4, 32, "BF16", "q4 g32")
    packed("packed int8 f16", 3, 128, 8, 64, "F16", "q8 g64 f16")
    packed("packed int2, wide scales", 3, 64, 2, 32, "F32", "f32")
    packed("packed int4, small groups", 3, 64, 4, 16, "BF16", "f32")
    packed("packed int3, no gaps", 3, 64, 3, 32, "BF16", "q3 g32")
    packed("packed int3, with gaps", 3, 64, 3, 32, "BF16", "f32", gaps=True)
    packed("packed int5, with gaps", 7, 64, 5, 8, "BF16", "f32", zeros=True, gaps=True)
    packed("packed int6, zeros across words", 11, 64, 6, 32, "BF16", "f32", zeros=True)
    packed("packed int7, odd inputs", 3, 37, 7, 37, "BF16", "f32")
    packed("packed int4 with zeros", 9, 64, 4, 32, "BF16", "f32", zeros=True)
    packed("packed int4 in an order", 3, 64, 4, 16, "BF16", "f32", zeros=True, order=True)
    packed_names = ("m.weight_packed", "m.weight_scale", "m.weight_global_scale")
    mxfp4("packed mxfp4", compressed("mxfp4-pack-quantized", 4, "float"), *packed_names[:2],
          (3, 64), "mxfp4")
    nvfp4("packed nvfp4", compressed("nvfp4-pack-quantized", 4, "float"), packed_names, (3, 128),
          "nvfp4_scaled", "divide")
    nvfp4("packed nvfp4 of odd width", compressed("nvfp4-pack-quantized", 4, "float"),
          packed_names, (2, 48), "f32", "divide")
    own = ("m.weight", "m.weight_scale", "m.weight_scale_2")
    nvfp4("modelopt nvfp4", method("modelopt", quant_algo="NVFP4"), own, (3, 128), "nvfp4_scaled",
          "multiply", minus_zero=False)
    mxfp4("gpt-oss mxfp4", method("mxfp4"), "m_blocks", "m_scales", (2, 3, 64), "mxfp4",
          (2, 3, 2, 16))
    mlx = ("m.weight", "m.scales", "m.global_scale")
    mxfp4("mlx mxfp4", {"quantization": {"mode": "mxfp4"}}, *mlx[:2], (3, 64), "mxfp4", (3, 8))
    nvfp4("mlx nvfp4", {"quantization": {"mode": "nvfp4"}}, mlx, (3, 64), "nvfp4", None, True)
    nvfp4("mlx nvfp4 of odd width", {"quantization": {"mode": "nvfp4"}}, mlx, (3, 32), "f32",
          None, True)
    nvfp4("mlx nvfp4 with factors", {"quantization": {"mode": "nvfp4", "global_scale": True}}, mlx,
          (3, 2, 128), "nvfp4_scaled", "mlx", True)
    mxfp8("mlx mxfp8", 3, 64)
    for bits, group in ((2, 32), (3, 64), (4, 32), (5, 32), (6, 64), (8, 128)):
        affine(f"mlx affine {bits}", 2, 128, bits, group)
    gptq("gptq 4, symmetric", 8, 64, 4, 32, "q4 g32 f16", "gptq", sym=True)
    gptq("gptq 4, symmetric, no g_idx", 8, 64, 4, 64, "q4 g64 f16", "gptq", sym=True, g_idx=False)
    gptq("gptq 4, zeros", 8, 64, 4, 32, "f32", "gptq")
    gptq("gptq 4, version 2", 8, 64, 4, 32, "f32", "gptq_v2")
    gptq("gptq 4, version 2, symmetric", 8, 64, 4, 32, "q4 g32 f16", "gptq_v2", sym=True)
    gptq("gptq 4, order of activations", 16, 64, 4, 16, "f32", "gptq", order=True)
    gptq("gptq 3", 32, 32, 3, 32, "f32", "gptq")
    gptq("gptq 3, symmetric", 32, 96, 3, 32, "q3 g32 f16", "gptq", sym=True)
    gptq("gptq 2", 16, 32, 2, 32, "f32", "gptq")
    gptq("gptq 8", 8, 64, 8, 32, "f32", "gptq")
    gptq("gptq 4, a shorter last group", 8, 40, 4, 32, "f32", "gptq")
    awq("awq", 16, 64, 32)
    awq("awq, one group", 8, 16, 16)
    print(json.dumps(CASES, indent=0))


main()

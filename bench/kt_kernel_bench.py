#!/usr/bin/env python3
"""The routed experts of one layer with kt-kernel, to be put beside bench/moe_bench.

Loads the extension of an installed or unpacked kt-kernel wheel by itself, which needs NumPy alone
and no PyTorch, fills it with random weights, and times calls with a new random routing each.

  AMXINT4, AMXINT8  one scale for a row of weights, quantized by kt-kernel from bfloat16
  RAWINT4           four bits, a scale for 32 weights
  q4_0, q4_k, q8_0  its llamafile backend, blocks of a GGUF file
"""

import argparse
import ctypes
import glob
import importlib.util
import os
import sys
import time

import numpy as np

GGML_BF16 = 30
# ggml's number of a block type, weights and bytes of a block, bytes of its binary16 fields.
GGML_TYPES = {"q4_0": (2, 32, 18, (0,)), "q8_0": (8, 32, 34, (0,)), "q4_k": (12, 256, 144, (0, 2))}
AMX_CLASSES = {"AMXINT4": "AMXInt4_MOE", "AMXINT8": "AMXInt8_MOE", "RAWINT4": "AMXInt4_KGroup_MOE"}


def load_extension(package: str, variant: str):
    paths = glob.glob(os.path.join(package, f"_kt_kernel_ext_{variant}.*.so"))
    if not paths:
        sys.exit(f"{package} has no variant {variant} for this Python")
    spec = importlib.util.spec_from_file_location("kt_kernel_ext", paths[0])
    module = importlib.util.module_from_spec(spec)
    sys.modules["kt_kernel_ext"] = module
    spec.loader.exec_module(module)
    return module


def random_bf16(generator, shape) -> np.ndarray:
    """Numbers of both signs with sizes from 1/128 to 1/64."""
    bits = generator.integers(0, 0x80, size=shape, dtype=np.uint16)
    signs = generator.integers(0, 2, size=shape, dtype=np.uint16)
    return bits | np.uint16(0x3C00) | (signs << np.uint16(15))


def random_blocks(generator, values: int, kind: str) -> np.ndarray:
    _, weights, size, halves = GGML_TYPES[kind]
    blocks = generator.integers(0, 256, size=(values // weights, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at + 1] = 0x2C  # the upper byte of a binary16 near 1/16
    return blocks


def make_layer(kt, pool, kind: str, args, generator, keep: list):
    config = kt.moe.MOEConfig(args.experts, args.used, args.hidden, args.width)
    config.pool = pool.backend_
    config.layer_idx = 0
    config.max_len = max(args.batches)
    shape = (args.experts, args.width, args.hidden)
    values = args.experts * args.width * args.hidden
    ids = np.arange(args.experts, dtype=np.int64)
    keep.append(ids)
    config.physical_to_logical_map = ids.ctypes.data
    if kind in GGML_TYPES:
        config.m_block = 32
        config.group_min_len = 10
        config.group_max_len = max(args.batches)
        config.hidden_type = GGML_BF16
        config.gate_type = config.up_type = config.down_type = GGML_TYPES[kind][0]
        sources = [random_blocks(generator, values, kind) for _ in range(3)]
        name = "MOE"
    elif kind == "RAWINT4":
        config.quant_config.bits = 4
        config.quant_config.group_size = 32
        config.quant_config.zero_point = False
        sources = [generator.integers(0, 256, size=values // 2, dtype=np.uint8) for _ in range(3)]
        scales = [random_bf16(generator, values // 32) & np.uint16(0x7FFF) for _ in range(3)]
        keep.append(scales)
        config.gate_scale, config.up_scale, config.down_scale = (s.ctypes.data for s in scales)
        name = AMX_CLASSES[kind]
    else:
        sources = [random_bf16(generator, shape) for _ in range(3)]
        name = AMX_CLASSES[kind]
    keep.append(sources)
    config.gate_proj, config.up_proj, config.down_proj = (s.ctypes.data for s in sources)
    layer = getattr(kt.moe, name)(config)
    pool.submit(layer.load_weights_task(ids.ctypes.data))
    pool.sync()
    return layer


def time_batch(pool, layer, args, tokens: int, generator) -> float:
    """Median seconds of a call, without the first fifth of the calls."""
    x = random_bf16(generator, (tokens, args.hidden))
    out = np.zeros((tokens, args.hidden), dtype=np.uint16)
    weights = np.full((tokens, args.used), 1.0 / args.used, dtype=np.float32)
    count = ctypes.c_int32(tokens)
    times = []
    while len(times) < 5 or (sum(times) < args.seconds and len(times) < 2000):
        chosen = np.argsort(generator.random((tokens, args.experts)), axis=1)[:, :args.used]
        chosen = np.ascontiguousarray(chosen, dtype=np.int64)
        task = layer.forward_task(ctypes.addressof(count), args.used, chosen.ctypes.data,
                                  weights.ctypes.data, x.ctypes.data, out.ctypes.data, False)
        begin = time.perf_counter()
        pool.submit(task)
        pool.sync()
        times.append(time.perf_counter() - begin)
    if not out.any():
        sys.exit("kt-kernel computed nothing but zeros")
    return float(np.median(times[len(times) // 5:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="the folder kt_kernel of an unpacked wheel")
    parser.add_argument("--variant", required=True, help="amx, avx512_bf16, …")
    parser.add_argument("--kinds", default="AMXINT4,AMXINT8,RAWINT4,q4_0,q8_0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--used", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batches", default="1,8,64,512")
    args = parser.parse_args()
    args.batches = [int(b) for b in args.batches.split(",")]

    kt = load_extension(args.package, args.variant)
    workers = kt.WorkerPoolConfig()
    workers.subpool_count = 1
    workers.subpool_numa_map = [0]
    workers.subpool_thread_count = [args.threads]
    pool = kt.CPUInfer(workers)
    generator = np.random.default_rng(1)
    for kind in args.kinds.split(","):
        keep: list = []
        layer = make_layer(kt, pool, kind, args, generator, keep)
        for tokens in args.batches:
            seconds = time_batch(pool, layer, args, tokens, generator)
            operations = 6 * tokens * args.used * args.hidden * args.width
            print(f"kt-kernel {args.variant:11s} {kind:8s} threads {args.threads:2d} "
                  f"batch {tokens:4d}: {seconds * 1e6:9.1f} us  {operations / seconds / 1e9:7.1f} "
                  "GOP/s", flush=True)
        del layer, keep


if __name__ == "__main__":
    main()

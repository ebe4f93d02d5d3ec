#!/usr/bin/env python3
"""`convert --dry-run` on checkpoints of published models, headers alone (bench/published_headers.py):
sizes as their dimensions give them, and memory for 60,000 tensors in 160 shards."""
import argparse
import importlib.util
import sys
import tempfile

from cli_runner import conclude

PAGE = 4096
PEAK_KIB = 400 * 1024
SAMPLE = ("Qwen3-Coder-480B-A35B-FP8", "gpt-oss-120b", "OLMoE-7B", "Qwen3.5-397B-A17B")
# Weights in units of 10^9 as published, without what predicts further tokens; of that: its own.
PUBLISHED = {"DeepSeek-V3-671B": (671.03, 13.46), "Kimi-K2-1T": (1026.41, 0),
             "Qwen3-235B-A22B": (235.09, 0), "Qwen3-Coder-480B-A35B": (480.15, 0),
             "Qwen3-Coder-480B-A35B-FP8": (480.15, 0), "GLM-4.5-355B": (352.8, 5.55),
             "gpt-oss-120b": (116.83, 0), "MiniMax-M2-230B": (228.69, 0),
             "Mixtral-8x22B": (140.63, 0), "OLMoE-7B": (6.92, 0),
             "Qwen3-Next-80B-A3B": (79.67, 1.65), "Qwen3.5-397B-A17B": (396.35, 6.6)}
# Bits of a weight as the experts are stored.
STORED = {"bf16": 16, "f8_e4m3": 132 * 8 / 128, "mxfp4": 17 * 8 / 32}


def load(path):
    spec = importlib.util.spec_from_file_location("published_headers", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a process that it starts looks there
    spec.loader.exec_module(module)
    return module


def expert_shape(config):
    """(layers with experts, experts of a layer, weights of an expert)."""
    count = next(config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts")
                 if k in config)
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    return (config["num_hidden_layers"] - config.get("first_k_dense_replace", 0), count,
            3 * config["hidden_size"] * width)


def check(headers, program, name, scratch, limited, failures):
    found = headers.measure(program, name, scratch)
    report = found["report"]

    def expect(condition, what):
        if not condition:
            failures.append(f"{name}: {what}")
    layers, count, weights = expert_shape(headers.MODELS[name][3])
    size = weights * STORED[report["expert_format"]] / 8
    stride = -(-size // PAGE) * PAGE
    expect(report["expert_size"] == size, f"an expert has {report['expert_size']} bytes, not {size}")
    expect(report["expert_bytes"] == layers * count * stride,
           f"experts have {report['expert_bytes']} bytes, not {layers * count * stride}")
    plain, predicting = PUBLISHED[name]
    expect(abs(found["weights"] / 1e9 - plain - predicting) < 0.003 * plain,
           f"{found['weights'] / 1e9} weights")
    expect((report["prediction_bytes"] > 0) == (predicting > 0),
           f"prediction of {report['prediction_bytes']} bytes")
    expect(report["skipped_tensors"] == [], f"skipped {report['skipped_tensors'][:3]}")
    parts = report["expert_bytes"] + report["resident_bytes"] + report["prediction_bytes"]
    # Beside them only the manifests, which grow with the number of experts.
    expect(0 < report["total_bytes"] - parts < 64e6, f"{report['total_bytes'] - parts} bytes more")
    expect(report["source_bytes"] == found["source_bytes"],
           f"reads {report['source_bytes']} of {found['source_bytes']} bytes")
    if limited:
        expect(found["peak_kib"] < PEAK_KIB, f"{found['peak_kib']} KiB of memory")
    print(headers.row(found))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--headers", required=True, help="bench/published_headers.py")
    parser.add_argument("--all", action="store_true", help="all models, not a sample")
    parser.add_argument("--sanitized", action="store_true", help="memory is not measured")
    args = parser.parse_args()
    headers = load(args.headers)
    failures, most = [], 0
    with tempfile.TemporaryDirectory(prefix="moepack-sizes-") as scratch:
        for name in headers.MODELS if args.all else SAMPLE:
            found = check(headers, args.program, name, scratch, not args.sanitized, failures)
            most = max(most, found["tensors"])
    if most < 60000:
        failures.append(f"at most {most} tensors in a checkpoint")
    return conclude(failures, "")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Does the predicted loss of an expert rank experts like the measured one?

Takes N experts at random, quantizes each of them alone, and compares the KL divergence that
`moepack perplexity` measures with what `moepack sensitivity` predicted:

    expert_ranks.py MODEL --moepack BIN --measurements sensitivity.json --quantized PACK \\
        --text eval.txt -c 512 --experts 20 --seed 1 --work DIR

MODEL's pack packed_experts holds the unquantized experts, packed_experts_PACK all of them in one of
the measured widths, made by the same method. The packs with one quantized expert are put together
from the records of both, by their layout.json, in MODEL/packed_experts_one_expert.
Prints a line an expert and Spearman's rank correlation; exit status 1 when that is below --at-least.
"""

import argparse
import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

KEYS = ("expert_size", "expert_stride", "formats", "components")
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


class Pack:
    """Where the records of a pack lie; docs/pack-format.md."""

    def __init__(self, directory):
        self.directory = directory
        self.manifest = json.loads((directory / "layout.json").read_text(encoding="utf-8"))
        self.layouts = [{key: self.manifest[key] for key in KEYS},
                        *self.manifest.get("layouts", [])]

    def record(self, layer, expert):
        """-> layout, bytes with padding, checksum"""
        entry = self.manifest["layers"][layer]
        offset = 0
        for e in range(expert + 1):
            other = entry.get("experts", {}).get(str(e), {})
            layout = self.layouts[other.get("layout", entry.get("layout", 0))]
            offset = other.get("offset", offset)
            if e < expert:
                offset += layout["expert_stride"]
        with open(self.directory / entry["file"], "rb") as file:
            file.seek(offset)
            data = file.read(layout["expert_stride"])
        return layout, data, entry["checksums"][expert]


def write_pack(directory, base, quantized, layer, expert):
    """Writes `base` with one expert of `quantized`. Layers that do not change are linked."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    manifest = {key: value for key, value in base.manifest.items() if key != "report"}
    entry = dict(manifest["layers"][layer])
    layout, record, checksum = quantized.record(layer, expert)
    index = len(base.layouts)
    with open(directory / entry["file"], "wb") as file:
        for e in range(base.manifest["num_experts"]):
            file.write(record if e == expert else base.record(layer, e)[1])
        entry["size"] = file.tell()
    others = dict(entry.get("experts", {}))
    others[str(expert)] = {"layout": index}
    entry["experts"] = dict(sorted(others.items(), key=lambda item: int(item[0])))
    entry["checksums"] = [checksum if e == expert else old
                          for e, old in enumerate(entry["checksums"])]
    manifest["layouts"] = [*manifest.get("layouts", []), layout]
    manifest["layers"] = [entry if i == layer else old
                          for i, old in enumerate(manifest["layers"])]
    for i, old in enumerate(manifest["layers"]):
        if i != layer:
            (directory / old["file"]).symlink_to(base.directory.resolve() / old["file"])
    (directory / "layout.json").write_text(json.dumps(manifest), encoding="utf-8")


def predicted(table, widths, layer, expert):
    """The predicted loss of an expert alone in nats, as docs/allocation-format.md computes it."""
    entry = table["layers"][layer]
    error = sum(entry[p][widths[p]][expert] for p in PROJECTIONS)
    per_energy, per_amplitude = entry["response"]
    return per_energy * error + per_amplitude * math.sqrt(error * entry["share"][expert])


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0] * len(values)
    for rank, i in enumerate(order):
        out[i] = rank
    return out


def correlation(a, b):
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    product = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    return product / math.sqrt(sum((x - mean_a) ** 2 for x in a)
                               * sum((y - mean_b) ** 2 for y in b))


def perplexity(arguments, *flags):
    done = subprocess.run([arguments.moepack, "perplexity", arguments.model, *flags, "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr, end="")
        sys.exit(2)
    return json.loads(done.stdout)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--moepack", required=True)
    parser.add_argument("--measurements", required=True)
    parser.add_argument("--quantized", required=True, metavar="PACK")
    parser.add_argument("--text", required=True)
    parser.add_argument("-c", "--ctx-size", default="512")
    parser.add_argument("--experts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.8)
    parser.add_argument("--work", required=True)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    model = Path(arguments.model)
    table = json.loads(Path(arguments.measurements).read_text(encoding="utf-8"))
    base = Pack(model / "packed_experts")
    quantized = Pack(model / f"packed_experts_{arguments.quantized}")
    widths = {p: quantized.layouts[0]["formats"][p]["format"][1:] for p in PROJECTIONS}
    Path(arguments.work).mkdir(parents=True, exist_ok=True)
    base_kld = Path(arguments.work) / "base.kld"
    perplexity(arguments, "--pack", "packed_experts", "-f", arguments.text, "-c",
               arguments.ctx_size, "--kl-divergence-base", base_kld)
    every = [(layer, expert) for layer in range(table["num_layers"])
             for expert in range(table["num_experts"])]
    chosen = sorted(random.Random(arguments.seed).sample(every, arguments.experts))
    pack = model / "packed_experts_one_expert"
    told, found = [], []
    for layer, expert in chosen:
        write_pack(pack, base, quantized, layer, expert)
        told.append(predicted(table, widths, layer, expert))
        found.append(perplexity(arguments, "--pack", "one_expert", "--kl-divergence-base",
                                base_kld, "--kl-divergence")["mean_kld"])
        print(f"layer {layer:3} expert {expert:4}: predicted {told[-1]:.3g}, "
              f"measured {found[-1]:.3g}", flush=True)
    shutil.rmtree(pack)
    rank = correlation(ranks(told), ranks(found))
    print(f"rank correlation over {len(chosen)} experts: {rank:.3f}")
    return 0 if rank >= arguments.at_least else 1


if __name__ == "__main__":
    sys.exit(main())

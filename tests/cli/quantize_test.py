#!/usr/bin/env python3
"""moepack quantize: its codes against a rounding written here, the same bytes whatever the threads
and interruptions, and one clear line for everything that cannot work."""
import json
import random
import shutil
import struct
import sys
import tempfile
from pathlib import Path

from checkpoint_files import read_tensors, write_checkpoint
from cli_runner import CliRunner, conclude, options, tree_hash

TEXT = "".join(f"fn f{i}(x: u32) -> u32 {{ x * {i} + {i * i} }}\n" for i in range(400))


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16(value):
    """The bits of the nearest bf16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def unpack_codes(data, bits, count):
    stream = int.from_bytes(data, "little")
    return [(stream >> (bits * i)) & ((1 << bits) - 1) for i in range(count)]


class Record:
    """One projection of one record, decoded after the component list of layout.json."""

    def __init__(self, pack, layout, expert, projection):
        parts = {c["name"]: c for c in layout["components"]}
        with open(pack / "layer_00.bin", "rb") as file:
            def read(part):
                entry = parts[f"{projection}.{part}"]
                file.seek(expert * layout["expert_stride"] + entry["offset"])
                return file.read(entry["size"])
            self.weight, scales, biases = read("weight"), read("scales"), read("biases")
        self.format = layout["formats"][projection]
        self.scales = struct.unpack(f"<{len(scales) // 2}H", scales)
        self.biases = struct.unpack(f"<{len(biases) // 2}H", biases)
        self.rows, self.groups = parts[f"{projection}.scales"]["shape"]
        self.bits = {"q2": 2, "q3": 3, "q4": 4, "q5": 5, "q6": 6, "q8": 8}[self.format["format"]]
        self.group = self.format["group_size"]

    def codes(self, row):
        size = self.groups * self.group * self.bits // 8
        return unpack_codes(self.weight[row * size:(row + 1) * size], self.bits,
                            self.groups * self.group)

    def values(self, row):
        out = []
        for i, code in enumerate(self.codes(row)):
            at = row * self.groups + i // self.group
            out.append(f32(f32(from_bf16(self.scales[at]) * code) + from_bf16(self.biases[at])))
        return out


def round_group(values, bits):
    """Scale, bias and codes of plain rounding, every operation in float32."""
    low, high = min(values), max(values)
    scale = bf16(f32(f32(high - low) / ((1 << bits) - 1)))
    bias = bf16(low)
    s, b = from_bf16(scale), from_bf16(bias)
    codes = [max(0, min((1 << bits) - 1, round(f32(f32(v - b) / s)))) for v in values]
    return scale, bias, codes


class Tester(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.checkpoint, self.every = args.checkpoint, args.every
        self.model = scratch / "model"
        self.calibration = scratch / "calibration"

    def quantize(self, name, *args, model=None, fault=None):
        return self.run("quantize", model or self.model, "--name", name, "--quiet", *args,
                        fault=fault)

    def pack(self, name):
        return self.model / f"packed_experts_{name}"

    def drop(self, name):
        shutil.rmtree(self.pack(name), ignore_errors=True)

    def refuses(self, what, needles, *args, model=None):
        super().refuses(what, needles, "quantize", model or self.model, "--name", "refused",
                        "--quiet", *args)

    # ---- what it writes ----

    def rounding(self):
        source = self.model / "packed_experts"
        layout = json.loads((source / "layout.json").read_text())
        for bits, group in ((2, 64), (3, 32), (4, 128), (5, 64), (6, 64), (8, 64)):
            name = f"rtn{bits}"
            self.succeeds("quantize", self.model, "--method", "rtn", "--bits", bits, "--group-size",
                          group, "--from", "packed_experts", "--name", name, "--quiet")
            made = json.loads((self.pack(name) / "layout.json").read_text())
            for projection in ("gate_proj", "down_proj"):
                before = Record(source, layout, 3, projection)
                after = Record(self.pack(name), made, 3, projection)
                self.expect(after.bits == bits and after.group == group, f"{name}: format")
                for row in (0, 1, after.rows - 1):
                    self.compare_row(name, before.values(row), after, row)
            self.succeeds("verify", self.model, "--pack", name)

    def compare_row(self, name, values, after, row):
        codes = after.codes(row)
        for g in range(after.groups):
            part = slice(g * after.group, (g + 1) * after.group)
            scale, bias, expected = round_group(values[part], after.bits)
            at = row * after.groups + g
            self.expect((after.scales[at], after.biases[at]) == (scale, bias),
                        f"{name}: scale and bias of row {row}, group {g}")
            self.expect(codes[part] == expected, f"{name}: codes of row {row}, group {g}")

    def mixture(self):
        """A pack has the widths by projection and layer that were asked for, and runs."""
        self.succeeds("quantize", self.model, "--method", "clip", "--gate-up-bits", 2,
                      "--down-bits", 3, "--layer-bits", "0=8,2-3=5", "--name", "mixed", "--quiet")
        layout = json.loads((self.pack("mixed") / "layout.json").read_text())
        listed = self.run("inspect", self.pack("mixed"), "--json")
        found = [layer["expert_format"] for layer in
                 json.loads(listed.stdout)["packs"][0]["layers"]]
        self.expect(found == ["q8 g64", "q2 g64, q3 g64", "q5 g64", "q5 g64"], f"mixture: {found}")
        self.expect(layout["source"]["method"] == "clip", "mixture: method")
        result = self.succeeds("perplexity", self.model, "--pack", "mixed", "-f",
                               self.scratch / "text", "-c", 64, "--json")
        self.expect(json.loads(result.stdout)["ppl"] > 1, "mixture: perplexity")

    def ledger(self):
        self.expect(self.gptq("ledger").returncode == 0, "gptq")
        layout = json.loads((self.pack("ledger") / "layout.json").read_text())
        ledger = layout["report"]["ledger"]
        calibration = json.loads((self.calibration / "calibration.json").read_text())
        self.expect(ledger["error"] == "output", "ledger: kind of error")
        for entry, recorded in zip(ledger["layers"], calibration["layers"]):
            self.expect(entry["samples"] == recorded["samples"], "ledger: samples")
            for projection in ("gate_proj", "up_proj", "down_proj"):
                columns = entry[projection]
                worse = [e for e, (b, a) in enumerate(zip(columns["before"], columns["after"]))
                         if a > b]
                self.expect(not worse, f"ledger: {projection} worse than rounding: {worse}")
        chosen = [ledger["methods"][m] for layer in ledger["layers"] for m in
                  layer["gate_proj"]["method"]]
        self.expect(chosen.count("gptq") > len(chosen) * 3 // 4, "ledger: hardly any gptq")

    def gptq(self, name, *args, fault=None):
        return self.quantize(name, "--method", "gptq", "--bits", 2, "--calibration",
                             self.calibration, *args, fault=fault)

    # ---- calibrations of the flash-moe tools ----

    def foreign(self):
        config = json.loads((self.model / "config.json").read_text())
        config = config.get("text_config", config)
        width, experts = config["hidden_size"], config["num_experts"]
        layers, top_k = config["num_hidden_layers"], 2
        dump, sums = bytearray(), {}
        for token in range(150):
            for layer in range(layers):
                chosen = random.sample(range(experts - 1), top_k)  # the last one never
                x = [random.gauss(0, 1 + i % 7) for i in range(width)]
                data = struct.pack(f"<{width}f", *x)
                dump += struct.pack("<ii", layer, top_k)
                for expert in chosen:
                    dump += struct.pack("<i", expert) + data
                sums.setdefault((layer, chosen[0]), []).append(x)
        path = self.scratch / "dump.bin"
        path.write_bytes(dump)
        result = self.quantize("dump", "--method", "gptq", "--bits", 3, "--calibration", path)
        self.expect(result.returncode == 0, f"dump: {result.stderr}")
        ledger = json.loads((self.pack("dump") / "layout.json").read_text())["report"]["ledger"]
        self.expect(all(sum(layer["samples"]) == 150 * top_k and layer["samples"][-1] == 0
                        for layer in ledger["layers"]), "dump: samples")
        path.write_bytes(dump[:-3])
        self.refuses("a truncated dump", ["dump.bin", "record"], "--method", "gptq", "--bits", 3,
                     "--calibration", path)
        at = 8 + 4 + 4 * 5  # input 5 of the first expert of the first record
        path.write_bytes(dump[:at] + struct.pack("<f", float("nan")) + dump[at + 4:])
        self.refuses("NaN in a dump", ["dump.bin", "record 0", "layer 0", "offset"], "--method",
                     "gptq", "--bits", 3, "--calibration", path)
        self.hessians(width, experts, sums)

    def hessians(self, width, experts, sums):
        root = self.scratch / "hessians"
        for layer in sorted({key[0] for key in sums}):
            counts = {}
            for expert in (0, 1):
                inputs = sums[(layer, expert)]
                counts[str(expert)] = len(inputs)
                h = [0.0] * (width * width)
                for x in inputs[:4]:
                    for i in range(width):
                        for j in range(width):
                            h[i * width + j] += x[i] * x[j]
                head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({width}, {width}), }}"
                head += " " * (-(len(head) + 11) % 64) + "\n"
                folder = root / f"layer_{layer:02}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"expert_{expert:03}.npy").write_bytes(
                    b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                    struct.pack(f"<{width * width}f", *h))
            (folder / "counts.json").write_text(json.dumps(counts))
        result = self.quantize("npy", "--method", "gptq", "--bits", 3, "--calibration", root)
        self.expect(result.returncode == 0, f"Hessians: {result.stderr}")
        report = json.loads((self.pack("npy") / "layout.json").read_text())["report"]
        self.expect(any("down_proj" in note for note in report["notes"]), "Hessians: no note")
        first = report["ledger"]["layers"][0]
        methods = report["ledger"]["methods"]
        self.expect(first["down_proj"]["weight_error"] == list(range(experts)) and
                    {methods[m] for m in first["down_proj"]["method"]} == {"grid"},
                    "Hessians: down_proj")
        self.expect(first["gate_proj"]["weight_error"] == list(range(2, experts)) and
                    methods[first["gate_proj"]["method"][0]] == "gptq", "Hessians: gate_proj")

    # ---- interruptions ----

    def undisturbed(self):
        hashes = set()
        for threads in (1, 2, 5) if self.shim else (1, 3):
            self.drop("same")
            self.expect(self.gptq("same", "-t", threads).returncode == 0, f"gptq -t {threads}")
            hashes.add(tree_hash(self.pack("same")))
        self.expect(len(hashes) == 1, "other threads, other bytes")
        return hashes.pop()

    def count(self):
        self.drop("same")
        counts = self.scratch / "counts"
        self.gptq("same", fault=f"count:{counts}")
        return self.counted(counts)

    def continues(self, name, expected):
        if (self.pack("same") / "layout.json").exists() and \
                not (self.pack("same") / "moepack.unfinished").exists():
            self.expect(tree_hash(self.pack("same")) == expected, f"{name}: finished, another hash")
            return
        result = self.run("perplexity", self.model, "--pack", "same", "-f", self.scratch / "text")
        self.expect(result.returncode == 2, f"{name}: an unfinished pack runs")
        result = self.gptq("same")
        self.expect(result.returncode == 0, f"{name}: next run: {result.stderr.strip()}")
        self.expect(tree_hash(self.pack("same")) == expected, f"{name}: another hash")

    def interruptions(self, expected):
        if self.shim is None:
            return
        calls = self.count()
        moments = [(op, n) for op in ("sync", "rename", "unlink")
                   for n in range(1, calls.get(op, 0) + 1)]
        moments += [("any", random.randint(1, calls["any"])) for _ in range(10)]
        moments = moments[::self.every]
        for op, n in moments:
            self.drop("same")
            self.gptq("same", fault=f"kill-after:{op}:{n}")
            self.continues(f"killed after {op} {n}", expected)
        for op, error in (("read", "EIO"), ("write", "ENOSPC"), ("sync", "EIO"), ("rename", "EIO")):
            places = sorted({1, calls[op] // 2, calls[op]} - {0})
            some = [places[len(op) % len(places)]]  # the first, middle and last, by operation
            for n in places if self.every == 1 else some:
                self.drop("same")
                result = self.gptq("same", fault=f"{error}:{op}:{n}")
                lines = result.stderr.strip().splitlines()
                self.expect(result.returncode == 2 and len(lines) == 1,
                            f"{error} at {op} {n}: exit {result.returncode}, {result.stderr}")
                self.continues(f"{error} at {op} {n}", expected)
        for layers in ("2", "0-1"):
            self.drop("same")
            self.expect(self.gptq("same", "--layers", layers).returncode == 0, "--layers")
            self.continues(f"--layers {layers}", expected)
        self.drop("same")
        self.gptq("same", "--layers", "1")
        result = self.gptq("same", "--group-size", 32)
        self.expect(result.returncode == 2 and "--restart" in result.stderr, "other options")
        self.continues("after a refusal", expected)

    # ---- refusals ----

    def broken(self, name, change):
        copy = self.scratch / name
        shutil.copytree(self.calibration, copy)
        change(copy)
        return copy

    def edit(self, **values):
        def change(directory):
            path = directory / "calibration.json"
            manifest = json.loads(path.read_text())
            manifest.update(values)
            path.write_text(json.dumps(manifest))
        return change

    def refusals(self):
        gptq = ("--method", "gptq", "--bits", 2, "--calibration")
        layer = "layer_01.bin.zst"
        size = (self.calibration / layer).stat().st_size

        def cut(directory):
            with open(directory / layer, "r+b") as file:
                file.truncate(size - 1)

        def flip(directory):
            with open(directory / layer, "r+b") as file:
                file.seek(size // 2)
                byte = file.read(1)
                file.seek(size // 2)
                file.write(bytes([byte[0] ^ 4]))
        self.refuses("gptq without calibration", ["--calibration"], "--method", "gptq", "--bits", 2)
        self.refuses("no calibration there", ["nowhere"], *gptq, self.scratch / "nowhere")
        self.refuses("another model", ["another model"], *gptq, self.broken(
            "other", self.edit(source_fingerprint="0123456789abcdef",
                               residents_checksum="0123456789abcdef")))
        self.refuses("a sibling of the same shape", ["another model"], *gptq, self.broken(
            "sibling", self.edit(residents_checksum="0123456789abcdef")))
        self.refuses("fewer experts a token", ["calibration.json"], *gptq,
                     self.broken("top_k", self.edit(experts_per_token=2)))
        self.refuses("fewer experts", ["experts"], *gptq,
                     self.broken("experts", self.edit(num_experts=11)))
        self.refuses("another width", ["calibration.json"], *gptq,
                     self.broken("hidden", self.edit(hidden_size=128)))
        self.refuses("truncated", [layer], *gptq, self.broken("cut", cut))
        # Only reading shows that: layers before it are finished and stay for the next run.
        result = self.quantize("flipped", *gptq, self.broken("flip", flip))
        self.expect(result.returncode == 2 and layer in result.stderr and
                    len(result.stderr.strip().splitlines()) == 1, f"a flipped bit: {result.stderr}")
        result = self.run("perplexity", self.model, "--pack", "flipped", "-f", self.scratch / "text")
        self.expect(result.returncode == 2 and "not finished" in result.stderr,
                    f"an unfinished pack: {result.stderr}")
        self.drop("flipped")
        self.refuses("a missing layer", [layer], *gptq,
                     self.broken("gone", lambda d: (d / layer).unlink()))
        self.refuses("no width", ["--bits"], "--method", "rtn")
        self.refuses("a layer too many", ["layer 9"], "--method", "rtn", "--bits", 2,
                     "--layer-bits", "9=3")
        self.refuses("a list of layers", ["--layer-bits"], "--method", "rtn", "--bits", 2,
                     "--layer-bits", "0=")
        self.refuses("no such source", ["nowhere"], "--method", "rtn", "--bits", 2, "--from",
                     "nowhere")
        result = self.quantize("a/b", "--method", "rtn", "--bits", 2)
        self.expect(result.returncode == 2 and "name" in result.stderr, "a name with a slash")
        self.drop("twice")
        self.quantize("twice", "--method", "rtn", "--bits", 2)
        result = self.quantize("twice", "--method", "rtn", "--bits", 3)
        self.expect(result.returncode == 2 and "already holds a pack" in result.stderr,
                    "a name that is taken")
        self.sources()

    def damaged_pack(self):
        """A source pack with a flipped bit is refused, and so is another source than before."""
        copy = self.scratch / "damaged"
        shutil.copytree(self.model, copy)
        with open(copy / "packed_experts" / "layer_01.bin", "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))
        rtn = ("--method", "rtn", "--bits", 2, "--from", "packed_experts")
        result = self.quantize("flip", *rtn, model=copy)
        self.expect(result.returncode == 2 and "layer_01.bin" in result.stderr and
                    "checksum" in result.stderr, f"a damaged source: {result.stderr}")
        result = self.quantize("flip", "--method", "rtn", "--bits", 2, "--from", "rtn8", model=copy)
        self.expect(result.returncode == 2 and "--restart" in result.stderr,
                    f"continued from another source: {result.stderr}")
        (copy / "moepack.unfinished").touch()
        self.refuses("an unfinished model", ["not finished"], *rtn, model=copy)

    def sources(self):
        self.damaged_pack()
        tensors = read_tensors(self.checkpoint)
        missing = {n: t for n, t in tensors.items() if "layers.1.mlp.switch_mlp.down_proj" not in n}
        write_checkpoint(self.checkpoint, self.scratch / "missing", missing)
        self.refuses("a missing expert", ["layers.1.", "down_proj"], "--method", "rtn", "--bits", 2,
                     "--from", self.scratch / "missing")
        name = next(n for n in tensors if "layers.2.mlp.switch_mlp.up_proj.scales" in n)
        dtype, shape, data = tensors[name]
        spoilt = dict(tensors)
        spoilt[name] = (dtype, shape, data[:200] + b"\xc0\x7f" + data[202:])
        write_checkpoint(self.checkpoint, self.scratch / "spoilt", spoilt)
        result = self.quantize("spoilt", "--method", "rtn", "--bits", 2, "--from",
                               self.scratch / "spoilt")
        self.expect(result.returncode == 2 and "layers.2." in result.stderr and
                    "not finite" in result.stderr and "offset" in result.stderr,
                    f"NaN in the source: {result.stderr}")
        self.drop("spoilt")


def main():
    args = options(shim=True, every=True).parse_args()
    random.seed(4)
    with tempfile.TemporaryDirectory(prefix="moepack-quantize-") as scratch:
        t = Tester(args, Path(scratch))
        (Path(scratch) / "text").write_text(TEXT)
        t.succeeds("convert", args.checkpoint, "-o", t.model, "--quiet")
        t.succeeds("calibrate", t.model, "-f", Path(scratch) / "text", "-o", t.calibration, "-c",
                   128, "--max-tokens", 512, "--quiet")
        t.rounding()
        t.mixture()
        t.foreign()
        t.ledger()
        t.interruptions(t.undisturbed())
        t.refusals()
        return conclude(t.failures, f"{t.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

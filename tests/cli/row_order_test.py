#!/usr/bin/env python3
"""Packs whose rows are in panels of 16: the same values as packs of rows, whatever reads them.

The panels are made here from the rows, by the words of docs/pack-format.md. The last part
interrupts commands (tests/support/fault_shim.cpp).
"""
import filecmp
import json
import shutil
import sys
import tempfile
from pathlib import Path

import gguf_files as gguf
import gguf_model
from cli_runner import CliRunner, conclude, options, tree_hash

PANEL = 16
PANELS = ("--row-order", "panels16")
BLOCK_BYTES = {"q4_0": 18, "q4_1": 20, "q8_0": 34, "q6_k": 210, "iq3_xxs": 98, "iq4_xs": 136}
FACTOR_BEHIND = {"q6_k"}
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def units(format_name, component, row_bytes):
    """(offset, size) of the units of a row."""
    if format_name not in BLOCK_BYTES:
        size = 4 if component == "weight" else 2
        return [(at, size) for at in range(0, row_bytes, size)]
    block = BLOCK_BYTES[format_name]
    odd = block % 4
    sizes = [4] * (block // 4)
    if odd:
        sizes = sizes + [odd] if format_name in FACTOR_BEHIND else [odd] + sizes
    out = []
    for begin in range(0, row_bytes, block):
        at = begin
        for size in sizes:
            out.append((at, size))
            at += size
    return out


def in_panels(data, rows, format_name, component):
    row_bytes = len(data) // rows
    if format_name in ("bf16", "f16", "f32"):
        return data
    out = bytearray()
    for panel in range(0, rows - PANEL + 1, PANEL):
        for at, size in units(format_name, component, row_bytes):
            for r in range(panel, panel + PANEL):
                out += data[r * row_bytes + at:r * row_bytes + at + size]
    return bytes(out) + data[rows // PANEL * PANEL * row_bytes:]


def layout_of(pack):
    return json.loads((pack / "layout.json").read_text())


def record_in_panels(record, layout):
    """A record by the components that the manifest of the rows lists."""
    out = b""
    for part in layout["components"]:
        module, component = part["name"].split(".")
        data = record[part["offset"]:part["offset"] + part["size"]]
        out += in_panels(data, part["shape"][0], layout["formats"][module]["format"], component)
    return out


class RowOrderTest(CliRunner):
    TIMEOUT = 240

    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.checkpoint, self.every = args.checkpoint, args.every
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([i * 7 % 256 for i in range(40)]))

    def model(self, name, source, *flags):
        self.succeeds("convert", source, "-o", self.scratch / name, "--quiet", *flags)
        return self.scratch / name

    def same_files(self, what, one, other):
        self.expect(tree_hash(one) == tree_hash(other), f"{what}: other files")

    # ---- what lies in the files ----

    def records_are(self, what, rows, panels):
        """Every record of the second pack is that of the first in panels."""
        here, there = layout_of(rows), layout_of(panels)
        layouts = [here] + here.get("layouts", [])
        for i, layer in enumerate(here["layers"]):
            data = (rows / layer["file"]).read_bytes()
            other = (panels / there["layers"][i]["file"]).read_bytes()
            at = other_at = 0
            for e in range(here["num_experts"]):
                own = layer.get("experts", {}).get(str(e), {})
                layout = layouts[own.get("layout", layer.get("layout", 0))]
                wanted = record_in_panels(data[at:at + layout["expert_size"]], layout)
                found = other[other_at:other_at + layout["expert_size"]]
                self.expect(found == wanted, f"{what}: layer {i}, expert {e}")
                at += layout["expert_stride"]
                other_at += layout["expert_stride"]
        text = (panels / "layout.json").read_text()
        self.expect('"row_order": "panels16"' in text, f"{what}: no row_order in the manifest")
        self.expect("components" not in there and "q3_streamed" not in text,
                    f"{what}: its manifest could be taken for that of other engines")

    def same_values(self, what, rows, panels, source):
        """Extract, exports and verify see no difference."""
        names = [f"model.layers.{layer}.mlp.experts.{e}.{p}{suffix}"
                 for layer in (0, 1) for e in (0, 3) for p in PROJECTIONS
                 for suffix in ("", ".scales")]
        for name in names:
            for flags in ((), ("--f32",)):
                files = [self.scratch / "one", self.scratch / "two"]
                codes = [self.run("extract", m, name, "-o", f, *flags).returncode
                         for m, f in zip((rows, panels), files)]
                self.expect(codes[0] == codes[1], f"{what}: extract {name}: {codes}")
                if codes == [0, 0]:
                    self.expect(filecmp.cmp(*files, shallow=False), f"{what}: extract {name}")
                for file in files:
                    file.unlink(missing_ok=True)
        self.succeeds("verify", panels)
        result = self.succeeds("verify", panels, "--against", source)
        wanted = self.run("verify", rows, "--against", source)
        self.expect(result.stdout == wanted.stdout.replace(str(rows), str(panels)),
                    f"{what}: verify says {result.stdout}, not {wanted.stdout}")
        for kind in ((), ("--gguf",)):
            outputs = [self.scratch / "export.gguf", self.scratch / "other.gguf"]
            results = [self.run("export", *kind, m, "-o", o, "--quiet")
                       for m, o in zip((rows, panels), outputs)]
            self.expect(results[0].returncode == results[1].returncode,
                        f"{what}: export {kind}: {results[1].stderr.strip()}")
            if results[0].returncode != 0:
                continue
            if kind:
                self.expect(filecmp.cmp(*outputs, shallow=False), f"{what}: export {kind}")
            else:
                self.same_files(f"{what}: export", *outputs)
            for output in outputs:
                shutil.rmtree(output) if output.is_dir() else output.unlink()

    def there_and_back(self, what, rows, panels):
        """The pack of rows becomes that of panels and comes back."""
        page = ("--page-size", layout_of(rows / "packed_experts")["page_size"])
        made = panels / "packed_experts_made"
        self.succeeds("convert", rows / "packed_experts", "-o", made, "--quiet", *PANELS, *page)
        self.same_files(f"{what}: convert PACK", made, panels / "packed_experts")
        back = rows / "packed_experts_back"
        self.succeeds("convert", made, "-o", back, "--quiet", *page)
        self.same_files(f"{what}: back to rows", back, rows / "packed_experts")
        shutil.rmtree(back)
        shutil.rmtree(made)

    def conversion(self, what, source, *flags):
        rows = self.model("rows", source, *flags)
        again = self.model("again", source, *flags, "--row-order", "rows")
        self.same_files(f"{what}: --row-order rows", rows, again)
        shutil.rmtree(again)
        panels = self.model("panels", source, *flags, *PANELS)
        for name in ("model_weights.bin", "model_weights.json", "config.json"):
            self.expect(filecmp.cmp(rows / name, panels / name, shallow=False), f"{what}: {name}")
        self.records_are(what, rows / "packed_experts", panels / "packed_experts")
        self.same_values(what, rows, panels, source)
        self.there_and_back(what, rows, panels)
        inspected = self.succeeds("inspect", panels).stdout
        self.expect("panels16" in inspected, f"{what}: inspect does not show the order")
        shutil.rmtree(rows)
        shutil.rmtree(panels)

    def gguf_source(self):
        path = self.scratch / "tiny.gguf"
        model = gguf_model.Model()
        vocabulary = gguf_model.byte_vocabulary(gguf_model.CONFIG["vocab_size"])
        path.write_bytes(gguf.Writer().write(model.keys(vocabulary), model.gguf))
        return path

    # ---- other commands that write packs ----

    def quantizers(self):
        rows = self.model("rows", self.checkpoint, "--expert-format", "q8")
        panels = self.model("panels", self.checkpoint, "--expert-format", "q8", *PANELS)
        quantize = ("--bits", "3", "--method", "rtn", "--from", "packed_experts", "--quiet")
        for model in (rows, panels):
            self.succeeds("quantize", model, "--name", "r", *quantize)
            self.succeeds("quantize", model, "--name", "p", *quantize, *PANELS)
        self.records_are("quantize", rows / "packed_experts_r", rows / "packed_experts_p")
        for name in ("r", "p"):
            for layer in ("layer_00.bin", "layer_03.bin"):
                self.expect(filecmp.cmp(rows / f"packed_experts_{name}" / layer,
                                        panels / f"packed_experts_{name}" / layer, shallow=False),
                            f"quantize {name}: a source in panels gives other bytes")
        hot = self.scratch / "hot.json"
        hot.write_text(json.dumps({
            "threshold": 0.8, "num_layers": 4, "num_experts": 12, "total_hot": 8, "total_cold": 40,
            "hot_experts": {str(layer): [0, 2] for layer in range(4)}}))
        tier = ("--hot-experts", hot, "--hot-bits", "4", "--cold-bits", "3", "--method", "rtn",
                "--from", "packed_experts", "--reuse", "packed_experts_r", "--quiet")
        self.succeeds("tier", rows, "--name", "tr", *tier)
        made = json.loads(self.succeeds("tier", rows, "--name", "tp", "--json", *tier,
                                        *PANELS).stdout)
        self.expect(made["records_reused"] == 48, f"tier: {made['records_reused']} records reused")
        self.records_are("tier", rows / "packed_experts_tr", rows / "packed_experts_tp")
        self.expect(not (rows / "packed_experts_tp" / "tiered_manifest.json").exists(),
                    "tier: a manifest for engines that cannot read it")
        back = rows / "packed_experts_back"
        self.succeeds("convert", rows / "packed_experts_tp", "-o", back, "--quiet")
        for name in ("layer_00.bin", "layer_03.bin"):
            self.expect(filecmp.cmp(back / name, rows / "packed_experts_tr" / name, shallow=False),
                        "tier: back to rows")
        shutil.rmtree(rows)
        shutil.rmtree(panels)

    def overlays(self, source):
        rows, panels = self.model("rows", source), self.model("panels", source)
        take = ("--gguf", source, "--tensors", "experts", "--name", "o", "--quiet")
        self.succeeds("overlay", rows, *take)
        self.succeeds("overlay", panels, *take, *PANELS)
        self.records_are("overlay", rows / "packed_experts_o", panels / "packed_experts_o")
        shutil.rmtree(rows)
        shutil.rmtree(panels)

    # ---- errors ----

    def errors(self):
        out = self.scratch / "out"
        self.refuses("unknown order", ["--row-order", "panels8"], "convert", self.checkpoint, "-o",
                     out, "--row-order", "panels8")
        for name in ("bf16", "f32"):
            self.refuses("plain experts", [name, "no panels", "--row-order"], "convert",
                         self.checkpoint, "-o", out, "--expert-format", name, *PANELS)
        model = self.model("model", self.checkpoint)
        self.refuses("a whole model", ["is a model directory", "one of its packs"], "convert", model,
                     "-o", out, *PANELS)
        self.refuses("another name", ["packed_experts_NAME"], "convert", model / "packed_experts",
                     "-o", out, *PANELS)
        self.refuses("another format", ["is a pack", "moepack quantize"], "convert",
                     model / "packed_experts", "-o", model / "packed_experts_p",
                     "--expert-format", "q2", *PANELS)
        self.refuses("a pack that is there", ["already holds a pack"], "convert",
                     model / "packed_experts", "-o", model / "packed_experts", *PANELS)
        residents = model / "model_weights.json"
        text = residents.read_text()
        residents.write_text(text.replace('"format": "q4"', '"format": "q4", "row_order": "panels16"',
                                          1))
        self.refuses("residents in panels", ["row_order", "expert packs"], "inspect", model)
        residents.write_text(text)
        layout = model / "packed_experts" / "layout.json"
        text = layout.read_text()
        layout.write_text(text.replace('"format": "q4"', '"format": "q4", "row_order": "columns"', 1))
        self.refuses("an order of tomorrow", ["row_order", "columns", "newer moepack"], "inspect",
                     model)
        shutil.rmtree(model)

    # ---- interruptions ----

    def interrupted(self, what, output, *command):
        """Killed after any sync or rename, the same command makes the same files."""
        def clear():
            shutil.rmtree(output, ignore_errors=True)
        clear()
        self.succeeds(*command)
        expected = tree_hash(output)
        clear()
        counts = self.scratch / "counts"
        self.run(*command, fault=f"count:{counts}")
        calls = self.counted(counts)
        for op in ("sync", "rename"):
            for n in range(1, calls[op] + 1, self.every):
                clear()
                self.run(*command, fault=f"kill-after:{op}:{n}")
                result = self.run(*command)
                finished = "already holds" in result.stderr
                self.expect(result.returncode == 0 or finished,
                            f"{what}: after {op} {n}: {result.stderr.strip()}")
                self.expect(tree_hash(output) == expected, f"{what}: after {op} {n}: other files")
        clear()

    def interruptions(self):
        model = self.model("model", self.checkpoint)
        out = self.scratch / "out"
        convert = ("convert", self.checkpoint, "-o", out, "--quiet")
        reorder = ("convert", model / "packed_experts", "-o", model / "packed_experts_p", "--quiet")
        self.interrupted("convert", out, *convert, *PANELS)
        self.interrupted("convert PACK", model / "packed_experts_p", *reorder, *PANELS)
        for what, where, command in (("convert", out, convert),
                                     ("convert PACK", model / "packed_experts_p", reorder)):
            self.succeeds(*command, *PANELS, "--layers", "1")
            self.expect((where / "moepack.unfinished").exists(), f"{what}: --layers finishes")
            self.is_error(f"{what}: another order", self.run(*command), ["interrupted", "--restart"])
            self.succeeds(*command, *PANELS)
            shutil.rmtree(where)
            self.succeeds(*command, *PANELS, "--layers", "1")
            self.succeeds(*command, "--restart")
            text = next(where.rglob("layout.json")).read_text()
            self.expect("row_order" not in text, f"{what}: --restart keeps the order")
            shutil.rmtree(where)
        dry = self.succeeds(*reorder[:-1], *PANELS, "--dry-run")
        self.expect("would take" in dry.stderr and not (model / "packed_experts_p").exists(),
                    f"--dry-run: {dry.stderr}")


def main():
    args = options(__doc__, shim=True, every=True).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-row-order-") as scratch:
        test = RowOrderTest(args, Path(scratch))
        test.conversion("source", args.checkpoint)
        for bits in (2, 3, 4, 5, 6, 8):
            group = 32 if bits in (2, 5) else 64 if bits != 8 else 128
            test.conversion(f"q{bits}", args.checkpoint, "--expert-format", f"q{bits}",
                            "--group-size", group)
        test.conversion("no padding", args.checkpoint, "--page-size", "1")
        source = test.gguf_source()
        test.conversion("GGUF", source)
        test.quantizers()
        test.overlays(source)
        test.errors()
        if args.shim is not None:
            test.interruptions()
        return conclude(test.failures, f"{test.runs} runs, {test.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

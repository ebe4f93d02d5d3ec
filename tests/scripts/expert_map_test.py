#!/usr/bin/env python3
"""scripts/expert_map.py: the picture parses, has a cell for every expert, and its colours follow use
and bits; bad input ends with exit code 2, one line and no file."""
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
SCRIPT = ROOT / "scripts" / "expert_map.py"
SVG = "{http://www.w3.org/2000/svg}"
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


class Tester:
    def __init__(self, scratch):
        self.scratch = scratch
        self.output = scratch / "map.svg"
        self.failures = []
        self.count = 0

    def expect(self, condition, text):
        self.count += 1
        if not condition:
            self.failures.append(text)

    def write(self, name, value):
        path = self.scratch / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def run(self, *args):
        self.output.unlink(missing_ok=True)
        return subprocess.run([sys.executable, "-B", SCRIPT, *map(str, args), "-o", self.output],
                              capture_output=True, text=True, check=False)

    def draw(self, *args):
        """{panel: {colour: set of (column, row)}} with cells numbered from the panel's corner."""
        done = self.run(*args)
        self.expect(done.returncode == 0, f"{args}: {done.stderr.strip()}")
        root = xml.etree.ElementTree.fromstring(self.output.read_text())
        self.expect(root.tag == SVG + "svg", "no SVG")
        panels = {}
        for group in root.iter(SVG + "g"):
            if "data-cells" in group.attrib:
                panels[group.get("id")] = self.cells(group)
        return root, panels

    def cells(self, group):
        places = {}
        for path in group.iter(SVG + "path"):
            found = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z", path.get("d"))
            self.expect(all(w == back and w != "0" and h != "0" for _, _, w, h, back in found)
                        and len("".join(f"M{x} {y}h{w}v{h}h-{b}z" for x, y, w, h, b in found))
                        == len(path.get("d")), "a path that is not made of cells")
            places.setdefault(path.get("fill"), []).extend((int(x), int(y)) for x, y, *_ in found)
        everything = [cell for cells in places.values() for cell in cells]
        columns = sorted({x for x, _ in everything})
        rows = sorted({y for _, y in everything})
        self.expect(len(set(everything)) == len(everything) == int(group.get("data-cells"))
                    == len(columns) * len(rows), f"cells of {group.get('id')}")
        return {colour: {(columns.index(x), rows.index(y)) for x, y in cells}
                for colour, cells in places.items()}

    def fails(self, name, parts, *args):
        done = self.run(*args)
        lines = done.stderr.splitlines()
        self.expect(done.returncode == 2 and len(lines) == 1 and not done.stdout
                    and all(part in lines[0] for part in parts),
                    f"{name}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
        self.expect(not self.output.exists(), f"{name}: left something behind")


def profile(layers):
    return {"format": "moepack.profile", "format_version": 1, "model": "m & <m>\u0001",
            "source_fingerprint": "0" * 16, "num_layers": len(layers),
            "num_experts": len(layers[0]), "experts_per_token": 0, "tokens": 0,
            "layers": [{"counts": counts} for counts in layers]}


def allocation(rows):
    return {"format": "moepack.allocation", "format_version": 1, "num_layers": len(rows),
            "num_experts": len(rows[0]), "other": 1,
            "layers": [{"layer": i, "gate_proj": row, "up_proj": row[::-1],
                        "down_proj": [3] * len(row)} for i, row in enumerate(rows)]}


def record(bits):
    names = {16: "bf16"}
    return {"formats": {p: {"format": names.get(b, f"q{b}")} for p, b in zip(PROJECTIONS, bits)}}


def of_colour(panel, cell):
    return next(colour for colour, cells in panel.items() if cell in cells)


def legend(root, name):
    """{text: colour} of a legend."""
    group = next(g for g in root.iter(SVG + "g") if g.get("id") == name)
    return {text.text: swatch.get("fill")
            for swatch, text in zip(group.iter(SVG + "rect"), group.iter(SVG + "text"))}


def uses(t):
    path = t.write("p.json", profile([[8, 0, 1, 1], [0, 0, 0, 0], [5, 5, 0, 0]]))
    root, panels = t.draw(path)
    t.expect(set(panels) == {"use"}, f"panels {set(panels)}")
    use = panels["use"]
    grey = of_colour(use, (1, 0))
    t.expect(use[grey] == {(1, 0), (0, 1), (1, 1), (2, 1), (3, 1), (2, 2), (3, 2)}, "unused ones")
    t.expect(of_colour(use, (2, 0)) == of_colour(use, (3, 0)), "equal use, other colour")
    t.expect(of_colour(use, (0, 2)) == of_colour(use, (1, 2)), "equal use, other colour")
    t.expect(len(use) == 4, f"{len(use)} colours of 8, 5, 1 and 0 tenths")
    shown = legend(root, "use-legend")
    t.expect(shown["not used"] == grey and shown["80 %"] == of_colour(use, (0, 0)), f"{shown}")
    text = " ".join(root.itertext())
    t.expect("m & <m>?" in text and "not used" in text and "80 %" in text and "layer" in text,
             "title, legend or label is missing")
    _, panels = t.draw(t.write("s.json", profile([[1, 0, 8, 1], [0, 3, 0, 3]])), "--sort")
    order = panels["use"]
    t.expect(of_colour(order, (1, 0)) == of_colour(order, (2, 0)), "order of layer 0")
    t.expect(of_colour(order, (3, 0)) == of_colour(order, (2, 1)) == of_colour(order, (3, 1)),
             "unused ones come last")


def bits(t):
    rows = [[2, 2, 4], [4, 2, 2]]
    path = t.write("a.json", allocation(rows))
    root, panels = t.draw("--allocation", path)
    t.expect(set(panels) == set(PROJECTIONS), f"panels {set(panels)}")
    low, high = of_colour(panels["gate_proj"], (0, 0)), of_colour(panels["gate_proj"], (2, 0))
    t.expect(low != high, "2 and 4 bits have one colour")
    t.expect(panels["gate_proj"] == {low: {(0, 0), (1, 0), (1, 1), (2, 1)}, high: {(2, 0), (0, 1)}},
             "gate")
    t.expect(panels["up_proj"] == {low: {(1, 0), (2, 0), (0, 1), (1, 1)}, high: {(0, 0), (2, 1)}},
             "up")
    t.expect(len(panels["down_proj"]) == 1 and not {low, high} & set(panels["down_proj"]), "down")
    t.expect(legend(root, "bits-legend") == {
        "2 bits": low, "3 bits": of_colour(panels["down_proj"], (0, 0)), "4 bits": high}, "legend")
    # Experts move with their use: the most used one of each layer comes first.
    p = t.write("p.json", profile([[1, 0, 9], [9, 1, 0]]))
    _, panels = t.draw(p, "--allocation", path, "--sort")
    t.expect(panels["gate_proj"][high] == {(0, 0), (0, 1)}, "sorted")


def packs(t):
    layout = {"format_version": 1, "num_layers": 3, "num_experts": 3, **record((2, 3, 4)),
              "layouts": [record((16, 16, 16)), record((8, 3, 4))],
              "layers": [{}, {"layout": 1, "experts": {"2": {"layout": 0}}},
                         {"experts": {"0": {"layout": 2}, "1": {"offset": 4096}}}]}
    t.write("pack/layout.json", layout)
    _, panels = t.draw("--pack", t.scratch / "pack")
    again = t.draw("--pack", t.scratch / "pack" / "layout.json")[1]
    t.expect(panels == again, "directory and file give other pictures")
    gate = panels["gate_proj"]
    t.expect(sorted(map(sorted, gate.values())) == [
        [(0, 0), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)], [(0, 1), (1, 1)], [(0, 2)]],
             f"gate {gate}")
    up = panels["up_proj"]
    t.expect(of_colour(up, (0, 1)) == of_colour(gate, (0, 1)) and len(up) == 2, "up")
    t.expect(len({of_colour(panels[p], (0, 0)) for p in PROJECTIONS}) == 3, "2, 3 and 4 bits")
    for name, change, part in (
            ("layout beyond", lambda x: x["layers"][0].update(layout=3), "layers[0]"),
            ("expert beyond", lambda x: x["layers"][0].update(experts={"3": {}}), "experts"),
            ("format", lambda x: x["formats"]["up_proj"].update(format="q7"), "formats.up_proj"),
            ("foreign", lambda x: x.pop("format_version"), "moepack import"),
            ("layers", lambda x: x["layers"].pop(), "layers")):
        damaged = json.loads(json.dumps(layout))
        change(damaged)
        t.fails(name, ["layout.json", part], "--pack", t.write("damaged/layout.json", damaged))


def large(t):
    path = t.write("large.json", profile([[(e * 7 + l) % 97 for e in range(512)]
                                          for l in range(60)]))
    rows = [[2 + (e + l) % 3 for e in range(512)] for l in range(60)]
    root, panels = t.draw(path, "--allocation", t.write("a.json", allocation(rows)), "--sort")
    t.expect(len(panels) == 4, "panels")
    # One expert that is used much more than all others leaves them their colours.
    layers = [[97 - e % 97 for e in range(512)] for _ in range(2)]
    layers[0][0] = 10**4
    root, panels = t.draw(t.write("outlier.json", profile(layers)))
    second = {of_colour(panels["use"], (e, 1)) for e in range(97)}
    t.expect(len(second) > 60 and "or more" in " ".join(root.itertext()),
             f"one outlier leaves {len(second)} colours")
    t.expect(512 <= int(root.get("width")) <= 2000 and int(root.get("height")) <= 2500,
             f"size {root.get('width')} x {root.get('height')}")
    t.expect(t.output.stat().st_size < 4 << 20, "larger than 4 MiB")


def errors(t):
    good = profile([[1, 2], [3, 4]])
    path = t.write("p.json", good)
    for name, change in (("format", {"format": "x"}), ("version", {"format_version": 2}),
                         ("layers", {"num_layers": 3}), ("experts", {"num_experts": 3}),
                         ("no number", {"num_experts": True}), ("no list", {"layers": {}}),
                         ("ranks", {"layers": [{"ranks": [1]}] * 2}),
                         ("negative", {"layers": [{"counts": [1, -2]}] * 2}),
                         ("text", {"layers": [{"counts": [1, "2"]}] * 2})):
        t.fails(name, ["bad.json"], t.write("bad.json", {**good, **change}))
    for text in ("", "{", "[1]", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
                 '{"a": NaN}', "[" * 100000):
        t.fails("no JSON", ["bad.json"], t.write("bad.json", text))
    a = allocation([[2, 4], [4, 2]])
    for name, change in (("format", {"format": "x"}), ("rows", {"layers": a["layers"][:1]}),
                         ("twice", {"layers": [a["layers"][0]] * 2}),
                         ("bits", {"layers": [{**x, "up_proj": [2, 0]} for x in a["layers"]]}),
                         ("width", {"layers": [{**x, "up_proj": [2]} for x in a["layers"]]})):
        t.fails(name, ["bad.json"], "--allocation", t.write("bad.json", {**a, **change}))
    other = t.write("other.json", allocation([[2, 4, 4]]))
    t.fails("another model", ["2 layers of 2", "different"], path, "--allocation", other)
    t.fails("no file", ["gone.json"], t.scratch / "gone.json")
    t.fails("nothing", ["nothing to draw"])
    t.fails("sort", ["--sort"], "--allocation", other, "--sort")
    t.fails("both", ["--pack"], "--allocation", other, "--pack", path)
    t.output = t.scratch / "missing" / "map.svg"
    t.fails("no directory", ["missing"], path)


def formats(t):
    """The script knows every weight format, with the bits that the project's table gives it."""
    table = (ROOT / "formats" / "weights" / "qformat.cpp").read_text()
    rows = re.findall(r'\{QFormatId::\w+, "(\w+)", QKind::k(\w+), (\d+), DType::\w+'
                      r'(?:, (\d+), (\d+))?', table)
    t.expect(len(rows) == table.count("{QFormatId::") and len(rows) > 30, "rows of another form")
    wanted = {name: int(size) * 8 / int(values) if kind == "Block" else int(bits)
              for name, kind, bits, values, size in rows}
    script = {"__name__": "expert_map"}
    exec(compile(SCRIPT.read_text(), SCRIPT, "exec"), script)
    t.expect(script["WEIGHT_BITS"] == wanted, f"bits differ: "
             f"{sorted(set(wanted.items()) ^ set(script['WEIGHT_BITS'].items()))}")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        tester = Tester(Path(scratch))
        for part in (uses, bits, packs, formats, large, errors):
            part(tester)
    print("\n".join(tester.failures) or f"{tester.count} checks passed")
    return 1 if tester.failures else 0


if __name__ == "__main__":
    sys.exit(main())

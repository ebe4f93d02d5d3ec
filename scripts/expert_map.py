#!/usr/bin/env python3
"""Draw which experts of a model are used, and how many bits each of them has.

Writes one SVG. The first panel is a grid of layers (rows) and experts (columns), coloured by each
expert's share of its layer's uses, from a profile (`moepack profile`, docs/profile-format.md). With
--pack (a pack directory or its layout.json, docs/pack-format.md) or --allocation (a
"moepack.allocation" file) three more follow: the bits of gate, up and down of each expert. Either is
enough; with both a profile and bits, --sort puts the experts of every layer in the order of their
use, so that the map shows whether the bits went where the uses are.

Standard library only. Exit status: 0 done, 2 an error, with one line on stderr.
"""

import argparse
import sys
from pathlib import Path

from json_file import read_json
from svg_file import document, plain, write_whole

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
# Bits of a weight by the format's name: of its code where scales lie apart, else all of its block's.
# Every format of formats/weights/qformat.cpp is here; a test compares the two.
WEIGHT_BITS = {"f32": 32, "f16": 16, "bf16": 16, "q2": 2, "q3": 3, "q4": 4, "q5": 5, "q6": 6,
               "q8": 8, "q4_0": 4.5, "q4_1": 5, "q5_0": 5.5, "q5_1": 6, "q8_0": 8.5, "q2_k": 2.625,
               "q3_k": 3.4375, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "iq2_xxs": 2.0625,
               "iq2_xs": 2.3125, "iq3_xxs": 3.0625, "iq1_s": 1.5625, "iq4_nl": 4.5, "iq3_s": 3.4375,
               "iq2_s": 2.5625, "iq4_xs": 4.25, "iq1_m": 1.75, "tq1_0": 1.6875, "tq2_0": 2.0625,
               "mxfp4": 4.25, "nvfp4": 4.5, "q1_0": 1.125, "q2_0": 2.25,
               "f8_e4m3": 8.25, "mxfp8": 8.25, "nvfp4_scaled": 4.75}
# Beyond this the picture would have more cells than people or viewers can take.
MAX_CELLS = 1 << 18
MAX_FILE_BYTES = 64 << 20

# Colours that keep apart on white and on black: ends of a scale of use (dark blue to yellow), and
# one colour for each number of bits.
USE_STOPS = ((0x3B, 0x3A, 0x7D), (0x2F, 0x7F, 0x96), (0x43, 0xB0, 0x6E), (0xF2, 0xC9, 0x2C))
UNUSED = "#8a8a8a"
BIT_COLOURS = ((2, "#7b3294"), (3, "#2c6fbb"), (4, "#1f9e89"), (5, "#8fbf3f"), (6, "#e0b81f"),
               (8, "#e5762b"), (16, "#c2293a"), (32, "#7a1020"))
NO_EXPERTS = 0  # in place of bits, of a layer that has none


class MapError(Exception):
    """Something that makes the picture impossible; shown as one line."""


def read_object(path):
    try:
        root = read_json(path, MAX_FILE_BYTES)
    except ValueError as error:
        raise MapError(str(error)) from None
    if not isinstance(root, dict):
        raise MapError(f"{path}: must be an object")
    return root


def integer(root, key, path, low=1, high=1 << 16):
    value = root.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MapError(f"{path}: {key}: must be an integer from {low} to {high}")
    return value


def objects(root, key, path, count=None):
    value = root.get(key)
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise MapError(f"{path}: {key}: must be a list of objects")
    if count is not None and len(value) != count:
        raise MapError(f"{path}: {key}: has {len(value)} entries, {count} are needed")
    return value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


# ---- what is read ----

def read_profile(path):
    """(name, shares [layers][experts] or None where a layer has no uses)."""
    root = read_object(path)
    if root.get("format") != "moepack.profile":
        raise MapError(f"{path}: format: is not moepack.profile; make one with moepack profile")
    if root.get("format_version") != 1:
        raise MapError(f"{path}: format_version: is {root.get('format_version')!r}, 1 is understood")
    layers, experts = integer(root, "num_layers", path), integer(root, "num_experts", path)
    shares = []
    for index, layer in enumerate(objects(root, "layers", path, layers)):
        counts = layer.get("counts")
        if "ranks" in layer:
            raise MapError(f"{path}: layers[{index}]: has ranks without counts, which no map shows")
        if (not isinstance(counts, list) or len(counts) != experts
                or not all(isinstance(c, int) and is_number(c) for c in counts)):
            raise MapError(f"{path}: layers[{index}].counts: must be {experts} counts")
        uses = sum(counts)
        shares.append([count / uses for count in counts] if uses else [0.0] * experts)
    return root.get("model") or "", shares


def format_bits(record, path, where):
    """Bits of gate, up and down of one layout."""
    formats = record.get("formats")
    bits = []
    for projection in PROJECTIONS:
        entry = formats.get(projection) if isinstance(formats, dict) else None
        name = entry.get("format") if isinstance(entry, dict) else None
        if name not in WEIGHT_BITS:
            raise MapError(f"{path}: {where}formats.{projection}: {name!r} is no format of weights")
        bits.append(WEIGHT_BITS[name])
    return bits


def layer_layouts(layer, index, experts, path):
    """The layout of each expert of a layer."""
    def number(holder, where):
        value = holder.get("layout", 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise MapError(f"{path}: layers[{index}]{where}.layout: must be a layout's number")
        return value

    layouts = [number(layer, "")] * experts
    others = layer.get("experts", {})
    if not isinstance(others, dict):
        raise MapError(f"{path}: layers[{index}].experts: must be an object")
    for key, entry in others.items():
        if not key.isascii() or not key.isdigit() or int(key) >= experts:
            raise MapError(f"{path}: layers[{index}].experts: {key[:64]!r} is no expert, "
                           f"there are {experts}")
        if not isinstance(entry, dict):
            raise MapError(f"{path}: layers[{index}].experts.{key}: must be an object")
        if "layout" in entry:
            layouts[int(key)] = number(entry, f".experts.{key}")
    return layouts


def read_pack(path):
    """(name, {projection: bits [layers][experts]})."""
    file = Path(path)
    if file.is_dir():
        file = file / "layout.json"
    root = read_object(file)
    if root.get("format_version") != 1:
        raise MapError(f"{file}: format_version: 1 is needed; a pack of another engine becomes one "
                       "with moepack import")
    layers, experts = integer(root, "num_layers", file), integer(root, "num_experts", file)
    records = [format_bits(root, file, "")]
    if "layouts" in root:
        records += [format_bits(record, file, f"layouts[{i}].")
                    for i, record in enumerate(objects(root, "layouts", file))]
    bits = {projection: [] for projection in PROJECTIONS}
    for index, layer in enumerate(objects(root, "layers", file, layers)):
        if layer.get("dense") is True:
            for projection in PROJECTIONS:
                bits[projection].append([NO_EXPERTS] * experts)
            continue
        layouts = layer_layouts(layer, index, experts, file)
        if max(layouts) >= len(records):
            raise MapError(f"{file}: layers[{index}]: uses layout {max(layouts)}, "
                           f"there are {len(records)}")
        for column, projection in enumerate(PROJECTIONS):
            bits[projection].append([records[layout][column] for layout in layouts])
    return file.resolve().parent.name, bits


def read_allocation(path):
    """(name, {projection: bits [layers][experts]})."""
    root = read_object(path)
    if root.get("format") != "moepack.allocation":
        raise MapError(f"{path}: format: is not moepack.allocation")
    if root.get("format_version") != 1:
        raise MapError(f"{path}: format_version: is {root.get('format_version')!r}, 1 is understood")
    layers, experts = integer(root, "num_layers", path), integer(root, "num_experts", path)
    found = {}
    for index, layer in enumerate(objects(root, "layers", path, layers)):
        number = layer.get("layer", index)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < layers:
            raise MapError(f"{path}: layers[{index}].layer: must be a layer below {layers}")
        if number in found:
            raise MapError(f"{path}: layers[{index}].layer: repeats layer {number}")
        if layer.get("dense") is True:
            found[number] = {projection: [NO_EXPERTS] * experts for projection in PROJECTIONS}
            continue
        for projection in PROJECTIONS:
            row = layer.get(projection)
            if (not isinstance(row, list) or len(row) != experts
                    or not all(is_number(b) and 0 < b <= 32 for b in row)):
                raise MapError(f"{path}: layers[{index}].{projection}: must be {experts} numbers "
                               "of bits from 1 to 32")
        found[number] = layer
    bits = {p: [found[number][p] for number in range(layers)] for p in PROJECTIONS}
    return Path(path).name, bits


# ---- colours ----

def use_colour(share, most):
    """The colour of a share of uses; it goes by the root, which tells seldom used ones apart."""
    if share == 0:
        return UNUSED
    place = (min(share, most) / most) ** 0.5 * (len(USE_STOPS) - 1)
    low = min(int(place), len(USE_STOPS) - 2)
    mixed = [round(a + (b - a) * (place - low))
             for a, b in zip(USE_STOPS[low], USE_STOPS[low + 1])]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def largest_shown(shares):
    """The share at the end of the colours: of a hundred used experts the most used one lies beyond,
    so that a few of them do not make all others look alike."""
    used = sorted(share for line in shares for share in line if share > 0)
    return used[len(used) - 1 - len(used) // 100] if used else 1.0


def bits_colour(bits):
    """The colour of a width. Between two widths (blocks with their scales) it is the lower one's."""
    if bits == NO_EXPERTS:
        return UNUSED
    colour = BIT_COLOURS[0][1]
    for limit, name in BIT_COLOURS:
        if bits >= limit:
            colour = name
    return colour


# ---- drawing ----

class Picture:
    """Elements of an SVG, top to bottom."""

    LEFT, RIGHT, FONT = 70, 30, 12

    def __init__(self, layers, experts):
        self.layers, self.experts = layers, experts
        # Cells at least 2 x 4; small models get cells that are easy to see.
        self.cell_width = max(2, min(28, 1040 // experts))
        self.cell_height = max(4, min(24, 480 // layers))
        self.width = max(560, self.LEFT + experts * self.cell_width + self.RIGHT)
        self.y = 0
        self.parts = []

    def text(self, x, y, text, size=FONT, anchor="start", weight="normal", turn=False):
        rotate = f' transform="rotate(-90 {x} {y})"' if turn else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}"{rotate}>{plain(text)}</text>')

    def heading(self, title, subtitle):
        self.text(self.LEFT, 30, title, 18, weight="bold")
        self.text(self.LEFT, 50, subtitle)
        self.y = 60

    def panel(self, name, title, colours, x_label):
        """A grid; colours [layers][experts]. Runs of one colour are one path, cell by cell."""
        top = self.y + 34
        self.text(self.LEFT, top - 12, title, 13, weight="bold")
        by_colour = {}
        for row, line in enumerate(colours):
            for column, colour in enumerate(line):
                by_colour.setdefault(colour, []).append((column, row))
        gap = 1 if self.cell_width > 4 else 0
        w, h = self.cell_width - gap, self.cell_height - gap
        self.parts.append(f'<g id="{name}" data-cells="{self.layers * self.experts}" '
                          'shape-rendering="crispEdges">')
        for colour, cells in sorted(by_colour.items()):
            path = "".join(f"M{self.LEFT + c * self.cell_width} {top + r * self.cell_height}"
                           f"h{w}v{h}h-{w}z" for c, r in cells)
            self.parts.append(f'<path fill="{colour}" d="{path}"/>')
        self.parts.append("</g>")
        bottom = top + self.layers * self.cell_height
        self.axes(top, bottom, x_label)
        self.y = bottom + 40

    def axes(self, top, bottom, x_label):
        for row in ticks(self.layers, max(1, 14 // self.cell_height + 1)):
            self.text(self.LEFT - 6, top + row * self.cell_height + self.cell_height // 2 + 4,
                      str(row), 10, "end")
        for column in ticks(self.experts, max(1, 30 // self.cell_width + 1)):
            self.text(self.LEFT + column * self.cell_width + self.cell_width // 2, bottom + 14,
                      str(column), 10, "middle")
        self.text(self.LEFT + self.experts * self.cell_width // 2, bottom + 30, x_label, 11,
                  "middle")
        self.text(20, (top + bottom) // 2, "layer", 11, "middle", turn=True)

    def legend(self, name, entries):
        """Draws swatches with what they stand for, in lines."""
        x, y = self.LEFT, self.y + 8
        self.parts.append(f'<g id="{name}">')
        for colour, text in entries:
            length = 26 + 7 * len(text)
            if x > self.LEFT and x + length > self.width - self.RIGHT:
                x, y = self.LEFT, y + 20
            self.parts.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}"/>')
            self.text(x + 20, y + 11, text, 11)
            x += length + 12
        self.parts.append("</g>")
        self.y = y + 24

    def svg(self, description):
        return document(self.width, self.y + 10, self.parts, description)


def ticks(count, least):
    """Numbers to write at an axis of `count` places, at least `least` apart."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 65536)
                if s >= least)
    return range(0, count, step)


def permuted(rows, orders):
    return [[row[e] for e in order] for row, order in zip(rows, orders)]


def percent(share):
    return f"{100 * share:.3g} %"


def draw(shares, bits, names, title, is_sorted):
    rows = shares if shares is not None else bits[PROJECTIONS[0]]
    layers, experts = len(rows), len(rows[0])
    if is_sorted:
        orders = [sorted(range(experts), key=lambda e, line=line: (-line[e], e)) for line in shares]
        shares = permuted(shares, orders)
        bits = bits and {p: permuted(bits[p], orders) for p in PROJECTIONS}
    x_label = "rank of the expert by use in its layer" if is_sorted else "expert"
    picture = Picture(layers, experts)
    picture.heading(title, f"{layers} layers of {experts} experts"
                    + "".join(f"; {name}" for name in names if name))
    if shares is not None:
        most = largest_shown(shares)
        beyond = " or more" if max(map(max, shares)) > most else ""
        picture.panel("use", "Share of its layer's uses",
                      [[use_colour(s, most) for s in line] for line in shares], x_label)
        steps = [most * part ** 2 for part in (0.05, 0.25, 0.5, 0.75, 1)]
        picture.legend("use-legend", [(UNUSED, "not used")]
                       + [(use_colour(s, most), percent(s)) for s in steps[:-1]]
                       + [(use_colour(most, most), percent(most) + beyond)])
    if bits is not None:
        for projection in PROJECTIONS:
            picture.panel(projection, f"Bits of {projection}",
                          [[bits_colour(b) for b in line] for line in bits[projection]], x_label)
        widths = sorted({b for p in PROJECTIONS for line in bits[p] for b in line})
        picture.legend("bits-legend", [(bits_colour(b), "no experts" if b == NO_EXPERTS else f"{b:g} bits")
                                       for b in widths])
    return picture.svg(title)


# ---- the command ----

def write_output(path, text):
    try:
        write_whole(path, text)
    except OSError as error:
        raise MapError(f"{path}: {error.strerror}") from None


def parse_arguments():
    class Parser(argparse.ArgumentParser):
        def error(self, message):
            raise MapError(message)

    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", help="profile of expert use (JSON)")
    parser.add_argument("--pack", help="pack directory or layout.json: the bits it has")
    parser.add_argument("--allocation", help="allocation JSON: the bits it gives")
    parser.add_argument("--sort", action="store_true",
                        help="experts of each layer by falling use; needs a profile")
    parser.add_argument("--title", help="instead of the model's name")
    parser.add_argument("-o", "--output", required=True, help="SVG to write; -: stdout")
    args = parser.parse_args()
    if args.pack and args.allocation:
        raise MapError("--pack and --allocation do not go together")
    if not (args.profile or args.pack or args.allocation):
        raise MapError("there is nothing to draw; give a profile, --pack or --allocation")
    if args.sort and not args.profile:
        raise MapError("--sort needs a profile")
    return args


def main():
    args = parse_arguments()
    model, shares, bits, names = "", None, None, []
    if args.profile:
        model, shares = read_profile(args.profile)
        names.append("use: " + Path(args.profile).name)
    if args.pack or args.allocation:
        name, bits = read_pack(args.pack) if args.pack else read_allocation(args.allocation)
        names.append("bits: " + name)
    if shares is not None and bits is not None:
        gate = bits[PROJECTIONS[0]]
        used, given = (len(shares), len(shares[0])), (len(gate), len(gate[0]))
        if used != given:
            raise MapError(f"{args.profile}: has {used[0]} layers of {used[1]} experts, "
                           f"{args.pack or args.allocation} {given[0]} of {given[1]}: they are of "
                           "different models")
    rows = shares if shares is not None else bits[PROJECTIONS[0]]
    if len(rows) * len(rows[0]) > MAX_CELLS:
        raise MapError(f"{len(rows)} layers of {len(rows[0])} experts are more than a picture holds")
    title = args.title or " ".join(filter(None, ["Experts of", str(model) or "a model"]))
    svg = draw(shares, bits, names, title, args.sort)
    if args.output == "-":
        sys.stdout.write(svg)
    else:
        write_output(args.output, svg)


if __name__ == "__main__":
    try:
        main()
    except MapError as error:
        print("expert_map: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)

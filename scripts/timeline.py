#!/usr/bin/env python3
"""Draw where the time of one token goes: reading, computing, waiting.

Reads what `moepack bench --timeline FILE` (or run) wrote and draws one batch of tokens as SVG: on top
the stages of the forward pass, one after another, under them each read of an expert from its request
until its bytes were there, in as many lines as there were reads at once. --list names the batches.

Standard library only. Exit status: 0 done, 2 an error, with one line on stderr.
"""

import argparse
import sys
from collections import namedtuple

from json_file import read_json
from svg_file import document, plain, write_whole

BATCH, STAGE, READ = 0, 1, 2
MAX_FILE_BYTES = 512 << 20
LEFT, WIDTH, RIGHT = 90, 1000, 30
STAGE_HEIGHT, READ_HEIGHT, GAP = 34, 10, 2
MOST_LINES = 64
COLOURS = {"embed": "#7b8794", "full_attention": "#2c6fbb", "delta_net": "#1f9e89",
           "router": "#7b3294", "experts": "#e0b81f", "expert_wait": "#c2293a",
           "head": "#e5762b", "other": "#b0b0b0"}
READ_COLOUR = "#4f6d7a"

Event = namedtuple("Event", "track name start end args")  # times in microseconds


class TimelineError(Exception):
    """Something that makes the picture impossible; shown as one line."""


# ---- what is read ----

def is_time(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15


def read_event(entry, path, index):
    """An event, or None for what only names a track."""
    if not isinstance(entry, dict):
        raise TimelineError(f"{path}: traceEvents[{index}]: must be an object")
    if entry.get("ph") != "X":
        return None
    args, name, track = entry.get("args"), entry.get("name"), entry.get("tid")
    if (not is_time(entry.get("ts")) or not is_time(entry.get("dur")) or not isinstance(name, str)
            or track not in (BATCH, STAGE, READ) or not isinstance(args, dict)):
        raise TimelineError(f"{path}: traceEvents[{index}]: needs name, tid, ts, dur and args as "
                            "moepack writes them")
    for key, value in args.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TimelineError(f"{path}: traceEvents[{index}].args.{key}: must be a count")
    return Event(track, name, entry["ts"], entry["ts"] + entry["dur"], args)


def read_timeline(path):
    try:
        root = read_json(path, MAX_FILE_BYTES)
    except ValueError as error:
        raise TimelineError(str(error)) from None
    events = root.get("traceEvents") if isinstance(root, dict) else None
    if not isinstance(events, list):
        raise TimelineError(f"{path}: traceEvents: must be a list; make one with moepack bench "
                            "--timeline")
    found = [read_event(entry, path, index) for index, entry in enumerate(events)]
    return [event for event in found if event is not None]


def windows(events):
    """(start, end, tokens) of each batch, with its head: until the next one begins."""
    batches = sorted((e for e in events if e.track == BATCH), key=lambda e: e.start)
    stages_end = max((e.end for e in events if e.track == STAGE), default=0)
    ends = [batch.start for batch in batches[1:]] + [max(stages_end, batches[-1].end)] \
        if batches else []
    return [(batch.start, max(end, batch.end), batch.args.get("tokens", 0))
            for batch, end in zip(batches, ends)]


def middle_of_last_kind(batches):
    """The batch in the middle of the last run of batches of one size: decoding that is warm."""
    last = [i for i, batch in enumerate(batches) if batch[2] == batches[-1][2]]
    return last[len(last) // 2]


# ---- what the numbers say ----

def union_length(spans):
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def within(events, track, start, end):
    """The events of a track that touch the window, cut to it."""
    return [e._replace(start=max(e.start, start), end=min(e.end, end))
            for e in events if e.track == track and e.end > start and e.start < end]


def facts(stages, reads, window):
    start, end, _ = window
    length = end - start
    busy = union_length([(r.start, r.end) for r in reads])
    waiting = sum(s.end - s.start for s in stages if s.name == "expert_wait")
    arrived = sum(r.args.get("bytes", 0) for r in reads if r.end < end)
    return {"ms": length / 1e3, "reads": len(reads), "megabytes": arrived / 1e6,
            "gb_per_s": arrived / 1e3 / busy if busy else 0.0,
            "reading": busy / length, "waiting": waiting / length,
            "computing": sum(s.end - s.start for s in stages if s.name != "expert_wait") / length}


# ---- drawing ----

def lines_of(reads):
    """A line for each read, so that no two on one line overlap."""
    free, placed = [], []
    for read in sorted(reads, key=lambda r: (r.start, r.end)):
        line = next((i for i, until in enumerate(free) if until <= read.start), len(free))
        if line == len(free):
            free.append(0.0)
        free[line] = read.end
        placed.append((min(line, MOST_LINES - 1), read))
    return placed, min(len(free), MOST_LINES)


class Drawing:
    def __init__(self, start, end):
        self.start, self.scale = start, WIDTH / max(end - start, 1e-9)
        self.parts = []

    def text(self, x, y, text, size=12, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
                          f'text-anchor="{anchor}" font-weight="{weight}">{plain(text)}</text>')

    def bar(self, event, y, height, colour, label):
        x = LEFT + (event.start - self.start) * self.scale
        width = max(0.3, (event.end - event.start) * self.scale)
        self.parts.append(f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" '
                          f'fill="{colour}"><title>{plain(label)}</title></rect>')

    def axis(self, y, end):
        step = next(s for base in range(-3, 12) for s in (10 ** base, 2 * 10 ** base, 5 * 10 ** base)
                    if s * 1e3 * self.scale >= 60)
        count = 0
        while count * step * 1e3 <= end - self.start:
            x = LEFT + count * step * 1e3 * self.scale
            self.parts.append(f'<rect x="{x:.1f}" y="{y}" width="1" height="5" fill="#888"/>')
            self.text(x, y + 18, f"{count * step:g}", 10, "middle")
            count += 1
        self.text(LEFT + WIDTH, y + 32, "milliseconds", 11, "end")


def describe(event):
    place = f" of layer {event.args['layer']}" if "layer" in event.args else ""
    if event.track == READ:
        place = f" expert {event.args.get('expert', '?')}{place}, {event.args.get('bytes', 0)} bytes"
    return f"{event.name}{place}: {(event.end - event.start) / 1e3:.3f} ms"


def draw(events, window, title):
    start, end, tokens = window
    stages = within(events, STAGE, start, end)
    reads = within(events, READ, start, end)
    told = facts(stages, reads, window)
    picture = Drawing(start, end)
    picture.text(LEFT, 28, title, 18, weight="bold")
    picture.text(LEFT, 48, f"{tokens} token{'' if tokens == 1 else 's'} in {told['ms']:.2f} ms: "
                 f"computing {told['computing']:.0%}, waiting {told['waiting']:.0%}; "
                 f"reading {told['reading']:.0%} of the time, {told['reads']} experts, "
                 f"{told['megabytes']:.1f} MB, {told['gb_per_s']:.2f} GB/s meanwhile")
    picture.text(LEFT - 8, 66 + STAGE_HEIGHT / 2 + 4, "stages", 11, "end")
    picture.parts.append('<g id="stages">')
    for event in stages:
        picture.bar(event, 66, STAGE_HEIGHT, COLOURS.get(event.name, "#b0b0b0"), describe(event))
    picture.parts.append("</g>")
    placed, lines = lines_of(reads)
    top = 66 + STAGE_HEIGHT + 10
    picture.text(LEFT - 8, top + 10, "reads", 11, "end")
    picture.parts.append('<g id="reads">')
    for line, event in placed:
        picture.bar(event, top + line * (READ_HEIGHT + GAP), READ_HEIGHT, READ_COLOUR,
                    describe(event))
    picture.parts.append("</g>")
    bottom = top + max(1, lines) * (READ_HEIGHT + GAP) + 4
    picture.axis(bottom, end)
    x, y = LEFT, bottom + 46
    for name in [n for n in COLOURS if any(e.name == n for e in stages)]:
        picture.parts.append(f'<rect x="{x}" y="{y}" width="14" height="14" '
                             f'fill="{COLOURS[name]}"/>')
        picture.text(x + 20, y + 11, name.replace("_", " "), 11)
        x += 40 + 7 * len(name)
    return document(LEFT + WIDTH + RIGHT, y + 30, picture.parts, title)


# ---- the command ----

def parse_arguments():
    class Parser(argparse.ArgumentParser):
        def error(self, message):
            raise TimelineError(message)

    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline", help="what --timeline wrote")
    parser.add_argument("--batch", type=int, help="which batch, from 0; without it one in the "
                                                  "middle of the last ones of a size")
    parser.add_argument("--list", action="store_true", help="name the batches instead")
    parser.add_argument("--title", default="Where the time of a token goes")
    parser.add_argument("-o", "--output", help="SVG to write; -: stdout")
    args = parser.parse_args()
    if not args.list and not args.output:
        raise TimelineError("give -o FILE, or --list")
    return args


def main():
    args = parse_arguments()
    events = read_timeline(args.timeline)
    batches = windows(events)
    if not batches:
        raise TimelineError(f"{args.timeline}: holds no batch")
    if args.list:
        for index, (start, end, tokens) in enumerate(batches):
            print(f"{index}: {tokens} tokens, {(end - start) / 1e3:.2f} ms")
        return
    index = middle_of_last_kind(batches) if args.batch is None else args.batch
    if not 0 <= index < len(batches):
        raise TimelineError(f"--batch {index}: there are {len(batches)} batches")
    svg = draw(events, batches[index], args.title)
    if args.output == "-":
        sys.stdout.write(svg)
        return
    try:
        write_whole(args.output, svg)
    except OSError as error:
        raise TimelineError(f"{args.output}: {error.strerror}") from None


if __name__ == "__main__":
    try:
        main()
    except TimelineError as error:
        print("timeline: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)

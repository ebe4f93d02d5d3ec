#!/usr/bin/env python3
"""scripts/timeline.py: bars lie where the events were, the numbers in the heading are those of the
window, a batch goes on until the next one begins; bad input ends with exit code 2 and one line."""
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "timeline.py"
SVG = "{http://www.w3.org/2000/svg}"
WIDTH = 1000  # of the picture's window


def event(track, name, start, end, **args):
    return {"name": name, "ph": "X", "pid": 0, "tid": track, "ts": start, "dur": end - start,
            "args": args}


# Two batches of one token. The second: 10 ms of a layer, of which 4 are waited, then 10 of the head.
EVENTS = [
    {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "batches"}},
    event(0, "batch", 0, 5000, tokens=1), event(1, "experts", 0, 8000, layer=0),
    event(0, "batch", 20000, 30000, tokens=1),
    event(1, "experts", 20000, 24000, layer=0), event(1, "expert_wait", 24000, 28000, layer=0),
    event(1, "experts", 28000, 30000, layer=0), event(1, "head", 30000, 40000),
    event(2, "read", 21000, 26000, layer=0, expert=7, bytes=3000000),
    event(2, "read", 21000, 28000, layer=0, expert=9, bytes=4000000),
    event(2, "read", 27000, 29000, layer=0, expert=3, bytes=1000000),
]


class Tester:
    def __init__(self, scratch):
        self.scratch, self.failures, self.count = scratch, [], 0
        self.output = scratch / "out.svg"

    def expect(self, condition, text):
        self.count += 1
        if not condition:
            self.failures.append(text)

    def run(self, value, *args):
        path = self.scratch / "timeline.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        self.output.unlink(missing_ok=True)
        return subprocess.run([sys.executable, "-B", SCRIPT, path, "-o", self.output, *args],
                              capture_output=True, text=True, check=False)

    def bars(self, root, name):
        group = next(g for g in root.iter(SVG + "g") if g.get("id") == name)
        return [(float(r.get("x")), float(r.get("y")), float(r.get("width")))
                for r in group.iter(SVG + "rect")]


def picture(t):
    done = t.run({"traceEvents": EVENTS}, "--batch", "1")
    t.expect(done.returncode == 0, done.stderr)
    text = t.output.read_text()
    root = xml.etree.ElementTree.fromstring(text)
    stages, reads = t.bars(root, "stages"), t.bars(root, "reads")
    left, per_ms = stages[0][0], WIDTH / 20
    t.expect([round((x - left) / per_ms, 3) for x, _, _ in stages] == [0, 4, 8, 10], "stages lie")
    t.expect([round(w / per_ms, 3) for _, _, w in stages] == [4, 4, 2, 10], "lengths of stages")
    t.expect([round((x - left) / per_ms, 3) for x, _, _ in reads] == [1, 1, 7], "reads lie")
    # The third begins when the first has ended, and shares its line.
    t.expect(reads[0][1] != reads[1][1] and reads[2][1] == reads[0][1], "lines of reads")
    # 8 MB in the 8 ms from 21 to 29; 20 ms in all.
    for fact in ("1 token in 20.00 ms", "computing 80%", "waiting 20%", "reading 40% of the time",
                 "3 experts", "8.0 MB", "1.00 GB/s"):
        t.expect(fact in text, f"{fact} is not said: {re.findall('>([^<]* ms:[^<]*)<', text)}")


def batches(t):
    listed = t.run({"traceEvents": EVENTS}, "--list").stdout.splitlines()
    t.expect(listed == ["0: 1 tokens, 20.00 ms", "1: 1 tokens, 20.00 ms"], f"listed {listed}")


def refusals(t):
    good = EVENTS[1]
    for value, word in (("no json", "JSON"), ({"traceEvents": {}}, "list"), ([], "list"),
                        ({"traceEvents": [1]}, "traceEvents[0]"),
                        ({"traceEvents": [dict(good, ts=-1)]}, "traceEvents[0]"),
                        ({"traceEvents": [dict(good, ts="0")]}, "traceEvents[0]"),
                        ({"traceEvents": [dict(good, tid=9)]}, "traceEvents[0]"),
                        ({"traceEvents": [dict(good, args={"tokens": -1})]}, "args.tokens"),
                        ({"traceEvents": []}, "no batch")):
        done = t.run(value)
        t.expect(done.returncode == 2 and len(done.stderr.splitlines()) == 1 and word in done.stderr
                 and not t.output.exists(), f"{value}: {done.returncode} {done.stderr}")
    done = t.run({"traceEvents": EVENTS}, "--batch", "2")
    t.expect(done.returncode == 2 and "2 batches" in done.stderr, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        tester = Tester(Path(scratch))
        for part in (picture, batches, refusals):
            part(tester)
    print("\n".join(tester.failures) or f"{tester.count} checks passed")
    return 1 if tester.failures else 0


if __name__ == "__main__":
    sys.exit(main())

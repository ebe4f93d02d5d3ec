"""What the tests of moepack sensitivity and moepack tier share: a model with a calibration, runs
with faults, and sizes of records counted from their definition (docs/pack-format.md)."""
import hashlib
import json
import math
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

TIMEOUT = 300
TEXT = "".join(f"fn f{i}(x: u32) -> u32 {{ x * {i} + {i * i} }}\n" for i in range(400))
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def tree_hash(directory):
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        digest.update(str(path.relative_to(directory)).encode() + b"\0")
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def listing(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def record_bytes(shape, bits, page):
    """An expert's record with its padding: codes, and 4 bytes for every group of 64."""
    hidden, width = shape
    size = sum(hidden * width * b // 8 + hidden * width // 64 * 4 for b in bits)
    return -(-size // page) * page


def divergence(table, widths):
    """Predicted: of each layer a E + b sqrt(E). `widths`: layer, projection, expert -> bits."""
    total = 0.0
    for number, layer in enumerate(table["layers"]):
        error = sum(layer[p][str(widths(number, p, e))][e]
                    for p in PROJECTIONS for e in range(table["num_experts"]))
        energy, amplitude = layer["response"]
        total += energy * error + amplitude * math.sqrt(error)
    return total


def near(a, b, tolerance=1e-4):
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


class Tester:
    def __init__(self, args, scratch):
        self.program, self.shim, self.every = args.program, args.shim, args.every
        self.scratch = scratch
        self.model = scratch / "model"
        self.calibration = scratch / "calibration"
        self.failures = []
        self.runs = 0
        (scratch / "text").write_text(TEXT)
        (scratch / "ids").write_text(json.dumps([i * 37 % 4000 + 11 for i in range(40)]))
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")
        self.calibrate(self.calibration)

    def calibrate(self, output, *flags):
        self.succeeds("calibrate", self.model, "-f", self.scratch / "text", "-o", output, "-c", 128,
                      "--max-tokens", 512, "--quiet", *flags)

    def expect(self, condition, text):
        if not condition:
            self.failures.append(text)

    def run(self, *args, fault=None):
        env = dict(os.environ)
        if fault is not None:
            env.update(LD_PRELOAD=str(self.shim), MOEPACK_FAULT=fault)
        self.runs += 1
        return subprocess.run([self.program, *map(str, args)], capture_output=True, text=True,
                              errors="replace", env=env, timeout=TIMEOUT, check=False)

    def succeeds(self, *args):
        result = self.run(*args)
        self.expect(result.returncode == 0, f"{' '.join(map(str, args))}: {result.stderr.strip()}")
        return result

    def report(self, *args):
        """Of a run that succeeds, its JSON; {} where it failed."""
        result = self.succeeds(*args, "--json")
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def refuses(self, what, needles, *args):
        """Exit 2, one line with every needle, nothing left behind or changed."""
        before = listing(self.scratch)
        result = self.run(*args)
        lines = result.stderr.strip().splitlines()
        self.expect(result.returncode == 2, f"{what}: exit {result.returncode}: {result.stderr}")
        self.expect(len(lines) == 1 and lines[0].startswith("moepack: ") and not result.stdout,
                    f"{what}: not one line: {result.stderr}")
        for needle in needles:
            self.expect(needle in result.stderr, f"{what}: no '{needle}' in {result.stderr.strip()}")
        after = listing(self.scratch)
        self.expect(after == before, f"{what}: left {sorted(set(after) ^ set(before))[:5]}")

    def copy(self, source, name, change):
        target = self.scratch / name
        shutil.copytree(source, target)
        change(target)
        return target

    def edited(self, source, name, **values):
        """A copy of a JSON file with other values."""
        content = json.loads(source.read_text())
        content.update(values)
        path = self.scratch / name
        path.write_text(json.dumps(content))
        return path

    def moments(self, *args):
        """Where a run with these arguments can be killed: (operation, number)."""
        counts = self.scratch / "counts"
        result = self.run(*args, fault=f"count:{counts}")
        self.expect(result.returncode == 0, f"counting: {result.stderr.strip()}")
        calls = {name: int(n) for name, n in (x.split() for x in counts.read_text().splitlines())}
        counts.unlink()
        self.expect(calls.get("rename", 0) > 0 and calls.get("sync", 0) > 0, f"operations: {calls}")
        moments = [(op, n) for op in ("sync", "rename", "unlink")
                   for n in range(1, calls.get(op, 0) + 1)]
        failing = [(error, op, n) for error, op in
                   (("EIO", "read"), ("ENOSPC", "write"), ("EIO", "sync"), ("EIO", "rename"))
                   for n in sorted({1, calls.get(op, 0) // 2, calls.get(op, 0)} - {0})]
        return moments[::self.every], failing[::self.every]


def main_with(kind, tests, parser):
    """Runs `tests` of a Tester of this kind; exit status."""
    parser.add_argument("--program", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--shim")
    parser.add_argument("--every", type=int, default=1, help="only every Nth interruption")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-bits-") as scratch:
        tester = kind(args, Path(scratch))
        for test in tests:
            try:
                test(tester)
            except (OSError, LookupError, ValueError) as error:  # after what failed before
                tester.failures.append(f"{test.__name__}: {error!r}")
        for failure in tester.failures:
            print("FAILED:", failure)
        print(f"{tester.runs} runs, {len(tester.failures)} failures")
        return 1 if tester.failures else 0

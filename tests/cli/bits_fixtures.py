"""What the tests of moepack sensitivity and moepack tier share: a model with a calibration, runs
with faults, and sizes of records counted from their definition (docs/pack-format.md)."""
import json
import math
import shutil
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options

TEXT = "".join(f"fn f{i}(x: u32) -> u32 {{ x * {i} + {i * i} }}\n" for i in range(400))
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def record_bytes(shape, bits, page):
    """An expert's record with its padding: codes, and 4 bytes for every group of 64."""
    hidden, width = shape
    size = sum(hidden * width * b // 8 + hidden * width // 64 * 4 for b in bits)
    return -(-size // page) * page


def divergence(table, widths):
    """The predicted loss, a E + b sqrt(E) of each layer. `widths`: layer, projection, expert -> bits."""
    total = 0.0
    for number, layer in enumerate(table["layers"]):
        error = sum(layer[p][str(widths(number, p, e))][e]
                    for p in PROJECTIONS for e in range(table["num_experts"]))
        energy, amplitude = layer["response"]
        total += energy * error + amplitude * math.sqrt(error)
    return total


def near(a, b, tolerance=1e-4):
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


class Tester(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.every = args.every
        self.model = scratch / "model"
        self.calibration = scratch / "calibration"
        (scratch / "text").write_text(TEXT)
        (scratch / "ids").write_text(json.dumps([i * 37 % 4000 + 11 for i in range(40)]))
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")
        self.calibrate(self.calibration)

    def calibrate(self, output, *flags):
        self.succeeds("calibrate", self.model, "-f", self.scratch / "text", "-o", output, "-c", 128,
                      "--max-tokens", 512, "--quiet", *flags)

    def report(self, *args):
        """Runs the command, which must succeed, and returns its JSON, or {} where it failed."""
        result = self.succeeds(*args, "--json")
        return json.loads(result.stdout) if result.returncode == 0 else {}

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
        calls = self.counted(counts)
        self.expect(calls.get("rename", 0) > 0 and calls.get("sync", 0) > 0, f"operations: {calls}")
        moments = [(op, n) for op in ("sync", "rename", "unlink")
                   for n in range(1, calls.get(op, 0) + 1)]
        failing = [(error, op, n) for error, op in
                   (("EIO", "read"), ("ENOSPC", "write"), ("EIO", "sync"), ("EIO", "rename"))
                   for n in sorted({1, calls.get(op, 0) // 2, calls.get(op, 0)} - {0})]
        return moments[::self.every], failing[::self.every]


def main_with(kind, tests):
    """Runs `tests` of a Tester of this kind; returns the exit status."""
    args = options(shim=True, every=True).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-bits-") as scratch:
        tester = kind(args, Path(scratch))
        for test in tests:
            try:
                test(tester)
            except (OSError, LookupError, ValueError) as error:  # after what failed before
                tester.failures.append(f"{test.__name__}: {error!r}")
        return conclude(tester.failures, f"{tester.runs} runs, ")

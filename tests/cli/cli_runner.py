"""What the tests of the command share: runs of it, also with injected faults; expectations that are
counted; what an error must look like; what a directory holds."""
import argparse
import hashlib
import json
import os
import subprocess
from pathlib import Path

SHOWN_FAILURES = 50


def tree_hash(directory):
    """A hash of the names and contents of everything below a directory."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        digest.update(str(path.relative_to(directory)).encode() + b"\0")
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def listing(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def small_cache(model):
    """MiB for --cache-mb: more than the experts of a token, less than all."""
    layout = json.loads((model / "packed_experts" / "layout.json").read_text())
    config = json.loads((model / "config.json").read_text())["text_config"]
    record = -(-layout["expert_size"] // 4096) * 4096
    used = layout["num_layers"] * config["num_experts_per_tok"] * record
    assert used + (2 << 20) < layout["num_layers"] * layout["num_experts"] * record, "a small model"
    return used // (1 << 20) + 1


def conclude(failures, summary):
    """Prints both numbers; returns the exit status."""
    for failure in failures[:SHOWN_FAILURES]:
        print("FAILED:", failure)
    if len(failures) > SHOWN_FAILURES:
        print(f"... and {len(failures) - SHOWN_FAILURES} more")
    print(f"{summary}{len(failures)} failures")
    return 1 if failures else 0


def options(description=None, shim=False, every=False):
    """The parser of a test's own flags."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--checkpoint", required=True, type=Path)
    if shim:
        parser.add_argument("--shim", type=Path, help="without it nothing is interrupted")
    if every:
        parser.add_argument("--every", type=int, default=1, help="only every Nth interruption")
    return parser


class CliRunner:
    TIMEOUT = 300  # seconds; a run that takes longer ends the test
    BAD_UTF8 = "replace"  # "strict": output that is no UTF-8 ends the test

    def __init__(self, program, scratch, shim=None):
        self.program, self.scratch, self.shim = program, scratch, shim
        self.failures = []
        self.checks = self.runs = 0

    def expect(self, condition, text):
        self.checks += 1
        if not condition:
            self.failures.append(text)
        return condition

    def run(self, *args, fault=None, binary=False):
        """Runs the command; `fault` says what tests/support/fault_shim.cpp is to do."""
        env = dict(os.environ)
        if fault is not None:
            env.update(LD_PRELOAD=str(self.shim), MOEPACK_FAULT=fault)
        self.runs += 1
        text = {} if binary else {"text": True, "errors": self.BAD_UTF8}
        return subprocess.run([self.program, *map(str, args)], capture_output=True, env=env,
                              timeout=self.TIMEOUT, check=False, **text)

    def succeeds(self, *args):
        result = self.run(*args)
        self.expect(result.returncode == 0, f"{' '.join(map(str, args))}: {result.stderr.strip()}")
        return result

    def is_error(self, what, result, needles):
        """Expects exit code 2, nothing on stdout, and one line on stderr that has every needle."""
        problems = [] if result.returncode == 2 else [f"exit code {result.returncode}"]
        if not result.stderr.startswith("moepack: ") or result.stderr.count("\n") != 1 or \
                not result.stderr.endswith("\n"):
            problems.append("not one line")
        if len(result.stderr) > 8192:
            problems.append(f"{len(result.stderr)} characters")
        if result.stdout:
            problems.append("text on stdout")
        problems += [f"does not name {n!r}" for n in needles if n not in result.stderr]
        self.expect(not problems, f"{what}: {'; '.join(problems)}\n    {result.stderr.strip()[:600]}")

    def refuses(self, what, needles, *args):
        """Expects an error that leaves nothing behind."""
        before = listing(self.scratch)
        self.is_error(what, self.run(*args), needles)
        after = listing(self.scratch)
        self.expect(after == before, f"{what}: left {sorted(set(after) ^ set(before))[:5]}")

    def counted(self, counts):
        """Operation -> calls, as a run with the fault count:`counts` left them."""
        calls = {name: int(n) for name, n in (x.split() for x in counts.read_text().splitlines())}
        counts.unlink()
        return calls

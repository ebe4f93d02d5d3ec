#!/usr/bin/env python3
"""How `moepack run` reads experts: the same answer in every way and from two disks; disks that fail,
are silent, or hold something else."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cli_runner import CliRunner, conclude, options

PROMPT = ("-p", "In Rust, ownership means that", "-n", "8", "--ignore-eos", "--cpu", "scalar")


class Checks(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.model = scratch / "model"
        self.pack = self.model / "packed_experts"
        os.environ["XDG_CACHE_HOME"] = str(scratch / "caches")
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")
        self.command = ("run", self.model, *PROMPT, "--json")
        self.tokens = json.loads(self.succeeds(*self.command).stdout)["tokens"]

    def answers(self):
        second = self.scratch / "second"
        shutil.copytree(self.pack, second)
        for mirror in ((), ("--pack-dir", second)):
            for mode in ("auto", "buffered", "direct", "mmap"):
                for engine in ("auto", "threads", "uring"):
                    flags = ("--io", mode, "--io-engine", engine, *mirror)
                    result = self.run(*self.command, *flags)
                    if result.returncode != 0:
                        said = ("mapped files", "io_uring", "page cache")
                        self.expect(any(s in result.stderr for s in said),
                                    f"{flags}: {result.stderr}")
                        continue
                    answer = json.loads(result.stdout)
                    self.expect(answer["tokens"] == self.tokens, f"{flags}: other tokens")
                    self.expect(mode in ("auto", answer["io"]), f"{flags}: {answer['io']}")
                    self.expect(engine in ("auto", answer["io_engine"]), f"{flags}: engine")

    def refusals(self):
        self.refuses("a mode", ["--io", "sideways"], *self.command, "--io", "sideways")
        self.refuses("an engine", ["--io-engine"], *self.command, "--io-engine", "steam")
        self.refuses("a directory", ["none", "--pack-dir"], *self.command, "--pack-dir",
                     self.scratch / "none")
        short = self.scratch / "short"
        short.mkdir()
        (short / "layer_00.bin").write_bytes(b"x" * 100)
        self.refuses("a short copy", ["layer_00.bin", "100 bytes"], *self.command, "--pack-dir",
                     short)

    def damaged_copy(self):
        """A second disk with wrong bytes: the answer is right, and a note names the file."""
        bad = self.scratch / "bad"
        shutil.copytree(self.pack, bad)
        for path in bad.glob("layer_*.bin"):
            path.write_bytes(bytes(b ^ 0xff for b in path.read_bytes()))
        result = self.succeeds(*self.command, "--pack-dir", bad)
        self.expect(json.loads(result.stdout)["tokens"] == self.tokens, "damaged copy: other tokens")
        self.expect("note: " + str(bad / "layer_") in result.stderr and "checksum" in result.stderr,
                    f"damaged copy: {result.stderr}")

    def threads(self, *more):
        return (*self.command, "--io", "buffered", "--io-engine", "threads", *more)

    def reads(self):
        counts = self.scratch / "counts"
        self.run(*self.threads(), fault=f"count:{counts}")
        return self.counted(counts)["read"]

    def failing_disk(self, last):
        for at in (last, last - 3):
            result = self.run(*self.threads(), fault=f"EIO:read:{at}")
            lines = [l for l in result.stderr.splitlines() if "note:" not in l]
            self.expect(result.returncode == 2 and len(lines) == 1 and "layer_" in lines[0]
                        and "disk may be failing" in lines[0] and not result.stdout,
                        f"EIO at read {at}: {result.returncode} {result.stderr}")

    def silent_disk(self, last):
        """A line while it waits, and an end by Ctrl-C."""
        env = dict(os.environ, LD_PRELOAD=str(self.shim), MOEPACK_FAULT=f"stall-60:read:{last}")
        self.runs += 1
        with subprocess.Popen([self.program, *map(str, self.threads())], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            start = time.monotonic()
            line = process.stderr.readline()
            waited = time.monotonic() - start
            self.expect("the disk has given nothing for 5.0 s" in line and "Ctrl-C" in line,
                        f"silent disk: {line!r}")
            self.expect(4 < waited < 30, f"the line came after {waited} s")
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(timeout=10)
                self.expect(code == -signal.SIGINT, f"Ctrl-C: exit code {code}")
            except subprocess.TimeoutExpired:
                self.expect(False, "Ctrl-C did not end it")
                process.kill()


def main():
    args = options(__doc__, shim=True).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        checks = Checks(args, Path(scratch))
        checks.answers()
        checks.refusals()
        checks.damaged_copy()
        if args.shim is not None:
            last = checks.reads()
            checks.failing_disk(last)
            checks.silent_disk(last)
        return conclude(checks.failures, f"{checks.runs} runs, {checks.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

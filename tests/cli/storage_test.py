#!/usr/bin/env python3
"""What the file system says no to, before and while a command runs: a full disk, a directory that
cannot be listed to its end. Every time an error of one line, and nothing is left behind.

The preloaded library (tests/support/fault_shim.cpp) makes the system say so.
"""
import json
import os
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options

NO_FAULT = "none:any:0"


class Tester(CliRunner):
    TIMEOUT = 120

    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.checkpoint = args.checkpoint
        self.model = scratch / "model"
        self.succeeds("convert", self.checkpoint, "-o", self.model, "--quiet")
        (scratch / "ids.json").write_text(json.dumps([i * 7 % 4000 for i in range(200)]))

    def commands(self):
        """Name -> arguments; each writes something of its own."""
        ids = self.scratch / "ids.json"
        return {
            "convert": ("convert", self.checkpoint, "-o", self.scratch / "other"),
            "quantize": ("quantize", self.model, "--bits", "2", "--method", "rtn", "--name", "two"),
            "calibrate": ("calibrate", self.model, "--token-ids", ids, "-o", self.scratch / "calib"),
            "export": ("export", self.model, "-o", self.scratch / "engine"),
            "export --gguf": ("export", "--gguf", self.model, "-o", self.scratch / "model.gguf"),
        }

    def full_disk(self):
        """Nothing free is not the same as not known."""
        os.environ["MOEPACK_FREE"] = "0"
        for name, args in self.commands().items():
            before = sorted(self.scratch.rglob("*"))
            result = self.run(*args, "--quiet", fault=NO_FAULT)
            self.is_error(f"{name} on a full disk", result, ["only 0 are free"])
            self.expect(sorted(self.scratch.rglob("*")) == before, f"{name}: leaves something")
        result = self.run("convert", self.checkpoint, "-o", self.scratch / "other", "--dry-run",
                          fault=NO_FAULT)
        self.expect(result.returncode == 0 and "does not fit" in result.stderr,
                    f"convert --dry-run: {result.stderr.strip()}")
        del os.environ["MOEPACK_FREE"]

    def unlistable(self):
        """Whichever step through whichever directory fails."""
        for name, args in (("verify", ("verify", self.model)), ("inspect", ("inspect", self.model)),
                           ("import", ("import", self.model, "--dry-run"))):
            counts = self.scratch / "counts"
            self.run(*args, fault=f"count:{counts}")
            steps = self.counted(counts)["list"]
            self.expect(steps > 2, f"{name}: lists nothing")
            for step in range(1, steps + 1):
                result = self.run(*args, fault=f"EIO:list:{step}")
                self.expect(result.returncode in (0, 1, 2) and "internal" not in result.stderr and
                            "terminate" not in result.stderr,
                            f"{name}, step {step}: {result.returncode} {result.stderr.strip()}")
                if step == 1:
                    self.is_error(f"{name}, first step", result, ["cannot list the directory"])


def main():
    args = options(__doc__, shim=True).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-storage-") as scratch:
        tester = Tester(args, Path(scratch))
        tester.full_disk()
        tester.unlistable()
        return conclude(tester.failures, f"{tester.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

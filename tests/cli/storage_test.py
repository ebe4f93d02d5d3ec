#!/usr/bin/env python3
"""What the file system says no to, before and while a command runs: a full disk, a directory that
cannot be listed to its end. Every time an error of one line, and nothing is left behind.

The preloaded library (tests/support/fault_shim.cpp) makes the system say so.
"""
import json
import os
import subprocess
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

    def full_at_the_marker(self):
        """A disk that is full at an export's first write."""
        result = self.run("export", self.model, "-o", self.scratch / "engine", "--quiet",
                          fault="ENOSPC:write:1")
        self.is_error("export, its marker", result, ["moepack.unfinished", "free some space"])
        self.expect(not (self.scratch / "engine").exists(), "export, its marker: leaves something")

    def few_descriptors(self):
        """A limit of open files is no question of paths and permissions."""
        told = 0
        for limit in (4, 5, 6):
            result = subprocess.run(
                ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", self.program, "extract",
                 self.checkpoint, "language_model.model.norm.weight", "-o", self.scratch / "norm"],
                capture_output=True, text=True, check=False, timeout=self.TIMEOUT)
            if result.returncode == 0 or "shared" in result.stderr:
                continue
            self.is_error(f"{limit} open files", result, ["Too many open files", "ulimit -n"])
            told += 1
        self.expect(told > 0, "no limit of open files was met")
        (self.scratch / "norm").unlink(missing_ok=True)

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

    def unlistable_entries(self):
        """A directory in the model's that is none of its packs is nobody's business; one that is
        meant as a pack is named."""
        ids = self.scratch / "ids.json"
        commands = {"run": ("run", self.model, "-p", "a", "-n", "1"),
                    "perplexity": ("perplexity", self.model, "--token-ids", ids, "-c", "64"),
                    "inspect": ("inspect", self.model), "verify": ("verify", self.model),
                    "import": ("import", self.model, "--dry-run")}
        for entry in ("lost+found", "packed_experts_x"):
            (self.model / entry).mkdir()
            os.environ["MOEPACK_UNLISTABLE"] = entry
            for name, args in commands.items():
                result = self.run(*args, fault=NO_FAULT)
                if entry == "lost+found" or name in ("run", "perplexity"):
                    self.expect(result.returncode == 0,
                                f"{name} beside {entry}: {result.stderr.strip()}")
                else:
                    self.is_error(f"{name} with {entry}", result,
                                  [str(self.model / entry), "cannot list the directory"])
            self.is_error(f"run --pack {entry}",
                          self.run("run", self.model, "-p", "a", "--pack", entry, fault=NO_FAULT),
                          [str(self.model / entry), "cannot list the directory"])
            del os.environ["MOEPACK_UNLISTABLE"]
            (self.model / entry).rmdir()
        packs = self.model / "packed_experts"
        packs.rename(self.scratch / "away")
        (self.model / "lost+found").mkdir()
        os.environ["MOEPACK_UNLISTABLE"] = "lost+found"
        self.is_error("no pack beside what cannot be listed",
                      self.run("run", self.model, "-p", "a", fault=NO_FAULT),
                      ["holds no expert pack"])
        del os.environ["MOEPACK_UNLISTABLE"]
        (self.model / "lost+found").rmdir()
        (self.scratch / "away").rename(packs)


def main():
    args = options(__doc__, shim=True).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-storage-") as scratch:
        tester = Tester(args, Path(scratch))
        tester.full_disk()
        tester.full_at_the_marker()
        tester.few_descriptors()
        tester.unlistable()
        tester.unlistable_entries()
        return conclude(tester.failures, f"{tester.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

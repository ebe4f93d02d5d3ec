#!/usr/bin/env python3
"""A control group with little memory: what does not fit is refused in one line before it is loaded, what
is not refused runs to its end, and the kernel's killer never comes. Exit 77 where no group can be made."""
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options

GROUPS = Path("/sys/fs/cgroup")
LIMITS = (12, 16, 20, 24, 32, 48, 64, 96, 160, 256)  # MiB


class Group:
    """A group of the memory controller, version 1 or 2, that is gone when it is left."""

    def __init__(self):
        own = f"moepack-test-{os.getpid()}"
        is_first = (GROUPS / "memory" / "memory.limit_in_bytes").exists()
        self.path = GROUPS / "memory" / own if is_first else GROUPS / own
        self.limit = "memory.limit_in_bytes" if is_first else "memory.max"
        self.swap = None if is_first else "memory.swap.max"

    def __enter__(self):
        self.path.mkdir()
        if not (self.path / self.limit).exists():
            self.path.rmdir()
            raise OSError(errno.ENOTSUP, "no memory controller here")
        if self.swap is not None and (self.path / self.swap).exists():
            (self.path / self.swap).write_text("0")
        return self

    def __exit__(self, *_):
        self.path.rmdir()

    def set_limit(self, mib):
        (self.path / self.limit).write_text(str(mib << 20))

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))


class Grouped(CliRunner):
    def __init__(self, args, scratch, group):
        super().__init__(args.program, scratch)
        self.group = group
        self.model = scratch / "model"
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")
        os.environ["XDG_CACHE_HOME"] = str(scratch / "caches")

    def within(self, mib, *args):
        self.group.set_limit(mib)
        self.runs += 1
        return subprocess.run([self.program, *map(str, args)], capture_output=True, text=True,
                              preexec_fn=self.group.join, timeout=self.TIMEOUT, check=False)

    def sweep(self, what, args):
        """Refused below some limit, and done from there on."""
        codes = []
        for mib in LIMITS:
            result = self.within(mib, *args)
            codes.append(result.returncode)
            name = f"{what} in {mib} MiB"
            if self.expect(result.returncode in (0, 2), f"{name}: {result.returncode} {result.stderr}"):
                lines = [l for l in result.stderr.splitlines() if "note:" not in l]
                if result.returncode == 2:
                    self.expect(len(lines) == 1 and "are available" in lines[0],
                                f"{name}: {result.stderr}")
        self.expect(codes == sorted(codes, reverse=True) and set(codes) == {0, 2}, f"{what}: {codes}")
        return codes

    def answers(self):
        """The text is that of a machine with room for everything."""
        args = ("run", self.model, "-p", "In Rust, ownership means", "-n", 6, "--ignore-eos", "--cpu",
                "scalar", "--json", "-c", 128)
        whole = json.loads(self.succeeds(*args).stdout)["tokens"]
        for mib in LIMITS:
            result = self.within(mib, *args)
            if result.returncode == 0:
                self.expect(json.loads(result.stdout)["tokens"] == whole, f"{mib} MiB: other tokens")

    def plans(self):
        """plan refuses where run does."""
        plan = self.sweep("plan", ("plan", self.model, "-c", 4096, "--disk-gbs", 1))
        run = self.sweep("run", ("run", self.model, "-p", "a", "-n", 1, "-c", 4096))
        bench = self.sweep("bench", ("bench", self.model, "-p", 4000, "-n", 2, "-r", 1, "--no-warmup"))
        self.expect(plan == run, f"plan {plan}, run {run}")
        return bench


def main():
    args = options(__doc__).parse_args()
    try:
        with Group() as group, tempfile.TemporaryDirectory() as scratch:
            checks = Grouped(args, Path(scratch), group)
            checks.plans()
            checks.answers()
            return conclude(checks.failures, f"{checks.runs} runs, {checks.checks} checks, ")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTSUP):
            raise
        print(f"SKIPPED: no control group can be made: {error}")
        return 77


if __name__ == "__main__":
    sys.exit(main())

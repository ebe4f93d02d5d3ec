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

from cli_runner import CliRunner, conclude, options, small_cache

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

    def while_it_runs(self, io, change, at):
        """Changes the pack's files while a read is held up; (exit code, stdout, stderr)."""
        stalled = self.scratch / "stalled"
        stalled.unlink(missing_ok=True)
        env = dict(os.environ, LD_PRELOAD=str(self.shim), MOEPACK_STALLED=str(stalled),
                   MOEPACK_FAULT=f"stall-2:read:{at}")
        self.runs += 1
        command = (*self.streaming, "--io", io, "--io-engine", "threads")
        with subprocess.Popen([self.program, *map(str, command)], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not stalled.exists() and process.poll() is None:
                time.sleep(0.01)
            self.expect(process.poll() is None, f"{io}: it ended before its files changed")
            for path in self.pack.glob("layer_*.bin"):
                change(path)
            out, err = process.communicate(timeout=self.TIMEOUT)
            return process.returncode, out, err

    def changing_files(self):
        """Files that are cut, overwritten or replaced while a run reads them: an error that names one,
        or, where the files that were opened stay as they are, the right answer."""
        self.streaming = (*self.command, "--cache-mb", small_cache(self.model), "--lookahead", 0)
        counts = self.scratch / "counts"
        self.run(*self.streaming, "--io", "buffered", "--io-engine", "threads", fault=f"count:{counts}")
        at = self.counted(counts)["read"] * 2 // 3
        whole = self.scratch / "whole"
        shutil.copytree(self.pack, whole)

        def restore():
            shutil.rmtree(self.pack)
            shutil.copytree(whole, self.pack)

        def cut(path):
            os.truncate(path, 4096)

        def overwrite(path):
            with open(path, "r+b") as file:
                file.write(b"\x55" * path.stat().st_size)

        def replace(path):
            other = path.with_suffix(".new")
            other.write_bytes(b"\x55" * path.stat().st_size)
            other.rename(path)

        for io in ("buffered", "direct"):
            for change, said in ((cut, "shorter"), (overwrite, "checksum")):
                code, out, err = self.while_it_runs(io, change, at)
                lines = [l for l in err.splitlines() if "note:" not in l]
                self.expect(code == 2 and not out and len(lines) == 1 and "layer_" in lines[0]
                            and said in lines[0], f"{io}, {change.__name__}: {code} {err}")
                restore()
            code, out, err = self.while_it_runs(io, replace, at)
            self.expect(code == 0 and json.loads(out)["tokens"] == self.tokens,
                        f"{io}, replaced: {code} {err}")
            restore()

    def full_disk(self):
        """The last block of a trace that finds no room is no silent loss."""
        trace = self.scratch / "full.trace"
        command = (*self.threads(), "--trace", trace, "--lookahead", 0)
        result = self.run(*command, fault="ENOSPC:write:2")  # the first is the head
        lines = [l for l in result.stderr.splitlines() if "full.trace" in l]
        self.expect(result.returncode == 2 and len(lines) == 1 and "cannot write" in lines[0]
                    and "--trace" in lines[0], f"a trace on a full disk: {result.returncode} {result.stderr}")
        self.succeeds(*command)

    def second_disk_alone(self):
        """Layers that lie only in --pack-dir: run, plan, bench and a replay with the model take them."""
        moved = self.scratch / "moved"
        moved.mkdir()
        for path in sorted(self.pack.glob("layer_*.bin"))[1:]:
            path.rename(moved / path.name)
        first = self.pack / "layer_00.bin"
        trace = self.scratch / "two.trace"
        for all_moved in (False, True):
            if all_moved:
                first.rename(moved / first.name)
            two = ("--pack-dir", moved)
            answer = json.loads(self.succeeds(*self.command, *two, "--trace", trace).stdout)
            self.expect(answer["tokens"] == self.tokens, "layers on two disks: other tokens")
            self.succeeds("plan", self.model, *two)
            self.succeeds("bench", self.model, *two, "-p", 4, "-n", 2, "-r", 1, "--cache-mb",
                          small_cache(self.model))
            self.succeeds("bench", "--replay", trace, self.model, *two)
            for command in (self.command, ("plan", self.model, "--disk-gbs", 1),
                            ("bench", "--replay", trace, self.model)):
                self.refuses(f"{command[0]} without --pack-dir", ["layer_0"], *command)
        for path in moved.glob("layer_*.bin"):
            path.rename(self.pack / path.name)

    def silent_second_disk(self):
        """Which of two disks is silent stands in the line: the first layer lies on one, the others, of
        which the last read is, on the other."""
        second = self.scratch / "silent"
        second.mkdir()
        for path in sorted(self.pack.glob("layer_*.bin"))[1:]:
            path.rename(second / path.name)
        command = (*self.threads("--lookahead", 0, "--cache-mb", small_cache(self.model)), "--pack-dir", second)
        counts = self.scratch / "counts"
        self.run(*command, fault=f"count:{counts}")
        last = self.counted(counts)["read"]
        result = self.run(*command, fault=f"stall-7:read:{last}")
        self.expect(result.returncode == 0 and json.loads(result.stdout)["tokens"] == self.tokens,
                    f"a silent second disk: {result.stderr}")
        line = next((l for l in result.stderr.splitlines() if "given nothing" in l), "")
        self.expect(str(second) in line and str(self.pack) not in line, f"the silent disk: {line!r}")
        for path in second.glob("layer_*.bin"):
            path.rename(self.pack / path.name)

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
            checks.silent_second_disk()
            checks.changing_files()
            checks.full_disk()
        checks.second_disk_alone()
        return conclude(checks.failures, f"{checks.runs} runs, {checks.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

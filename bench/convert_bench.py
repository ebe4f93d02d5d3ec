#!/usr/bin/env python3
"""Measures moepack convert against cp -r of the same bytes and prints a Markdown table.

Cases: copy (BF16 checkpoint, formats kept), repack (MLX 4-bit checkpoint, formats kept), q4 (BF16
experts and residents rounded to 4 bits). Runs alternate cp, convert, convert, cp, so that a drift
of the machine meets both alike; the table gives medians. Every time ends when the output is on the
disk: convert syncs what it writes, cp is followed by fsync of every file.

States: cold, the source's pages dropped before each run (posix_fadvise, no privileges needed); warm,
the source read once before each run. What was really cached before a run is measured and printed.
Memory is ru_maxrss of the convert process (wait4): its peak resident set, file pages included.
"""

import argparse
import ctypes
import mmap
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

CASES = {
    "copy": ("bf16", []),
    "repack": ("mlx", []),
    "q4": ("bf16", ["--expert-format", "q4", "--resident", "q4"]),
}
BLOCK = 8 << 20


def files_of(directory):
    return sorted(path for path in Path(directory).rglob("*") if path.is_file())


def size_of(directory):
    return sum(path.stat().st_size for path in files_of(directory))


def sync_files(directory):
    for path in files_of(directory):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def drop_pages(directory):
    """Takes clean pages of the files out of the page cache."""
    for path in files_of(directory):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_pages(directory):
    for path in files_of(directory):
        with open(path, "rb", buffering=0) as file:
            while file.read(BLOCK):
                pass


def cached_share(directory):
    """The share of the files' pages that are in the page cache, as mincore tells it."""
    libc = ctypes.CDLL(None, use_errno=True)
    resident = total = 0
    for path in files_of(directory):
        size = path.stat().st_size
        if size == 0:
            continue
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        flags = ctypes.create_string_buffer(pages)
        with open(path, "rb") as file:
            view = mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE,
                             mmap.PROT_READ | mmap.PROT_WRITE)
            anchor = ctypes.c_char.from_buffer(view)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(anchor)),
                                  ctypes.c_size_t(size), flags)
            del anchor
            view.close()
        if failed:
            return None
        resident += sum(byte & 1 for byte in flags.raw)
        total += pages
    return resident / total if total else 0.0


class Run:
    """One measured command: wall seconds, processor seconds, peak resident bytes."""

    def __init__(self, command, output, sync):
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{shlex.join(map(str, command))}: exit {process.returncode}\n"
                     f"{errors.decode(errors='replace')}")
        if sync:
            sync_files(output)
        self.seconds = time.monotonic() - start
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.peak_bytes = usage.ru_maxrss * 1024


class Bench:
    def __init__(self, flags):
        self.flags = flags
        self.scratch = Path(flags.scratch)
        self.output = self.scratch / "convert_bench.out"

    def source(self, form):
        given = self.flags.bf16 if form == "bf16" else self.flags.mlx
        if given:
            return Path(given)
        path = self.scratch / f"convert_bench.{form}"
        if not path.exists():
            if not self.flags.generator:
                sys.exit(f"give --{form} or --generator")
            subprocess.run([self.flags.generator, "-o", path, "--form",
                            "bf16-fused" if form == "bf16" else "mlx-4bit",
                            *shlex.split(self.flags.shape)], check=True)
        return path

    def prepare(self, source, state):
        shutil.rmtree(self.output, ignore_errors=True)
        os.sync()
        drop_pages(source)
        if state == "warm":
            read_pages(source)
        return cached_share(source)

    def measure(self, name, state):
        form, options = CASES[name]
        source = self.source(form)
        convert = [self.flags.program, "convert", source, "-o", self.output, "--quiet",
                   "-t", str(self.flags.threads), *options]
        copy = ["cp", "-r", source, self.output]
        runs = {"cp": [], "convert": []}
        cached = []
        for _ in range(self.flags.rounds):
            for kind in ("cp", "convert", "convert", "cp"):
                cached.append(self.prepare(source, state))
                command, sync = (copy, True) if kind == "cp" else (convert, False)
                runs[kind].append(Run(command, self.output, sync))
                if kind == "convert":
                    written = size_of(self.output)
        shutil.rmtree(self.output, ignore_errors=True)
        return self.row(name, state, size_of(source), written, runs, cached)

    def row(self, name, state, read, written, runs, cached):
        def median(kind, key):
            return statistics.median(getattr(run, key) for run in runs[kind])

        cp, convert = median("cp", "seconds"), median("convert", "seconds")
        peak = max(run.peak_bytes for run in runs["convert"])
        busy = median("convert", "cpu_seconds") / convert
        known = [share for share in cached if share is not None]
        share = f"{100 * statistics.mean(known):.0f} %" if known else "unknown"
        spread = ", ".join(f"{run.seconds:.2f}" for run in runs["convert"])
        spread_cp = ", ".join(f"{run.seconds:.2f}" for run in runs["cp"])
        return (f"| {name} | {state} ({share} cached) | {read / 1e9:.2f} | {written / 1e9:.2f} "
                f"| {cp:.2f} ({spread_cp}) | {convert:.2f} ({spread}) | {read / 1e9 / cp:.2f} "
                f"| {read / 1e9 / convert:.2f} | {100 * cp / convert:.0f} % "
                f"| {busy:.2f} | {peak / 2**20:.0f} |")


def machine(scratch):
    """One line about the machine: processor, memory, kernel, file system."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    done = subprocess.run(["stat", "-f", "-c", "%T", str(scratch)], capture_output=True, text=True,
                          check=False)
    return (f"{os.cpu_count()} processors ({cpu}), {memory:.0f} GiB memory, "
            f"Linux {platform.release()}, {done.stdout.strip() or 'unknown'} file system")


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the moepack command")
    parser.add_argument("--scratch", required=True, help="where checkpoints and outputs go")
    parser.add_argument("--generator", help="make_checkpoint, for sources that are not given")
    parser.add_argument("--shape", default="--preset 35b-a3b --layers 4",
                        help="flags of the generator (default: %(default)s)")
    parser.add_argument("--bf16", help="a BF16 checkpoint instead of a generated one")
    parser.add_argument("--mlx", help="an MLX 4-bit checkpoint instead of a generated one")
    parser.add_argument("--cases", default="copy,repack,q4")
    parser.add_argument("--states", default="cold,warm")
    parser.add_argument("--rounds", type=int, default=2, help="of cp, convert, convert, cp")
    parser.add_argument("-t", "--threads", type=int, default=0)
    flags = parser.parse_args()
    flags.cases = flags.cases.split(",")
    flags.states = flags.states.split(",")
    if not set(flags.cases) <= CASES.keys() or not set(flags.states) <= {"cold", "warm"}:
        parser.error("unknown case or state")
    return flags


def main():
    flags = parse_flags()
    os.makedirs(flags.scratch, exist_ok=True)
    bench = Bench(flags)
    print(f"Machine: {machine(flags.scratch)}. Threads: {flags.threads or os.cpu_count()}.\n")
    print("| case | source | read GB | written GB | cp s (runs) | convert s (runs) | cp GB/s "
          "| convert GB/s | of cp | processors busy | peak MiB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in flags.cases:
        for state in flags.states:
            print(bench.measure(name, state), flush=True)
    print("\nGB/s: bytes of the source a second, output on the disk. Memory: ru_maxrss of wait4.")


if __name__ == "__main__":
    main()

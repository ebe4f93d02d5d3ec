#!/usr/bin/env python3
"""Ctrl-C at any moment: a preloaded library (tests/support/fault_shim.cpp) lets one file operation take
a minute, so that every phase of a command can be met: heads, residents, experts, writing, the last
rename. Each ends at once, says how by its exit status, and leaves nothing that looks finished; the
next run of a command that writes completes what an undisturbed one gives."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cli_runner import CliRunner, conclude, options, small_cache, tree_hash
from served_model import Served

ENDS_WITHIN = 10  # seconds, on a busy machine
PHASES = (0.0, 0.3, 0.6, 0.9, 1.0)


class Interrupts(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.checkpoint = args.checkpoint
        self.model = scratch / "model"
        self.text = scratch / "text"
        self.text.write_text("In Rust, ownership means that a value has one owner at a time. " * 4)
        os.environ["XDG_CACHE_HOME"] = str(scratch / "caches")
        self.succeeds("convert", self.checkpoint, "-o", self.model, "--quiet")

    def moments(self, operation, args, prepare, fewest=len(PHASES)):
        """Calls of an operation, spread over an undisturbed run."""
        counts = self.scratch / "counts"
        prepare()
        result = self.run(*args, fault=f"count:{counts}")
        self.expect(result.returncode == 0, f"{args[0]}: {result.stderr}")
        calls = self.counted(counts)[operation]
        self.expect(calls >= fewest, f"{args[0]}: {calls} calls of {operation}")
        return sorted({max(1, round(phase * calls)) for phase in PHASES})

    def interrupted(self, args, operation, at, pauses=(), end=signal.SIGINT):
        """The exit status; None when it did not end. `pauses`: seconds before further signals."""
        stalled = self.scratch / "stalled"
        stalled.unlink(missing_ok=True)
        env = dict(os.environ, LD_PRELOAD=str(self.shim), MOEPACK_STALLED=str(stalled),
                   MOEPACK_FAULT=f"stall-60:{operation}:{at}")
        self.runs += 1
        with subprocess.Popen([self.program, *map(str, args)], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                give_up = time.monotonic() + 60
                while not stalled.exists() and process.poll() is None:
                    if time.monotonic() > give_up:
                        return None
                    time.sleep(0.01)
                process.send_signal(end)
                for pause in pauses:
                    time.sleep(pause)
                    process.send_signal(end)
                return process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                return None
            finally:
                process.kill()

    def ends(self, operation, args, codes=(-signal.SIGINT,), pauses=(), prepare=lambda: None,
             fewest=len(PHASES)):
        """Every phase of a command ends; yields each moment for what is to be looked at then."""
        for at in self.moments(operation, args, prepare, fewest):
            prepare()
            code = self.interrupted(args, operation, at, pauses)
            name = f"{args[0]}, {operation} {at}"
            if self.expect(code is not None, f"{name}: Ctrl-C did not end it"):
                self.expect(code in codes, f"{name}: exit status {code}")
            yield name

    def readers(self):
        run = ("run", self.model, "-p", "In Rust,", "-n", 4, "--ignore-eos", "--cpu", "scalar",
               "--io", "buffered", "--io-engine", "threads")
        scores = ("perplexity", self.model, "-f", self.text, "-c", 32, "--backend", "cpu", "--io", "buffered",
                  "--io-engine", "threads")
        for args in (run, scores, ("verify", self.model)):
            for _ in self.ends("read", args):
                pass

    def streams(self):
        """A cache too small for the model: reads are met in the prompt and in the last token's."""
        ids = self.scratch / "ids.json"
        ids.write_text(json.dumps([(7 * i) % 400 for i in range(40)]))
        small = ("--backend", "cpu", "--io", "buffered", "--io-engine", "threads", "--lookahead", 0,
                 "--cache-mb", small_cache(self.model))
        for _ in self.ends("read", ("run", self.model, "-f", self.text, "-n", 12, "--ignore-eos", *small)):
            pass
        out = self.scratch / "logits.f32"
        for name in self.ends("read", ("logits", self.model, "--token-ids", ids, "-o", out, *small),
                              prepare=lambda: out.unlink(missing_ok=True)):
            self.expect(not out.exists(), f"{name}: half a file of logits")

    def measures(self):
        """Probes of the disk read as often as there is time: the first reads are met."""
        large = self.scratch / "disk" / "large.bin"  # doctor measures with what is large enough
        large.parent.mkdir()
        with open(large, "wb") as file:
            file.truncate(80 << 20)
        before = tree_hash(self.model)
        bench = ("bench", self.model, "-p", 8, "-n", 2, "-r", 1, "--cache-mb", small_cache(self.model),
                 "--backend", "cpu", "--io", "buffered", "--io-engine", "threads")
        for args, moments in ((("plan", self.model), (1, 9)), (("doctor", "--dir", large.parent), (1, 9)),
                              (bench, (1, 40, 200))):
            for at in moments:
                code = self.interrupted(args, "read", at)
                self.expect(code == -signal.SIGINT, f"{args[0]}, read {at}: exit status {code}")
        # Without a large file one is written, which has no name.
        large.unlink()
        code = self.interrupted(("doctor", "--dir", large.parent), "sync", 1)
        self.expect(code == -signal.SIGINT, f"doctor, its own file: exit status {code}")
        self.expect(not list(large.parent.iterdir()), "doctor left its file behind")
        self.expect(tree_hash(self.model) == before, "the model is another one")

    def saved_prompts(self):
        """A prompt's state appears whole or not at all, and the next run answers the same."""
        file = self.scratch / "prompt.state"
        args = ("run", self.model, "-p", "In Rust, ownership", "-n", 3, "--ignore-eos", "--cpu", "scalar",
                "--io", "buffered", "--io-engine", "threads", "--prompt-cache", file)
        whole = self.succeeds(*args).stdout
        state = file.read_bytes()
        for name in self.ends("write", args, prepare=lambda: file.unlink(missing_ok=True), fewest=1):
            self.expect(not file.exists() or file.read_bytes() == state, f"{name}: half a state")
            again = self.run(*args)
            self.expect(again.returncode == 0 and again.stdout == whole, f"{name}: {again.stderr}")

    def writers(self):
        """What is written is completed by the next run."""
        target = self.scratch / "out"
        args = ("convert", self.checkpoint, "-o", target, "--quiet")
        for name in self.ends("any", args, prepare=lambda: shutil.rmtree(target, ignore_errors=True)):
            self.expect(not target.exists() or self.run("verify", target).returncode != 0 or
                        tree_hash(target) == tree_hash(self.model), f"{name}: looks finished")
            self.run(*args)  # refused where all but the last sync was done
            self.expect(tree_hash(target) == tree_hash(self.model), f"{name}: other bytes afterwards")
        shutil.rmtree(target)
        packs = self.model / "packed_experts_q2"
        args = ("quantize", self.model, "--from", self.checkpoint, "--bits", 2, "--name", "q2",
                "--method", "rtn", "--quiet")
        self.succeeds(*args)
        whole = tree_hash(packs)
        for name in self.ends("any", args, prepare=lambda: shutil.rmtree(packs, ignore_errors=True)):
            self.run(*args)
            self.expect(tree_hash(packs) == whole, f"{name}: other bytes afterwards")

    def talkers(self):
        """Chat and serve watch for the signal themselves: the first cancels or ends in good order, another
        does not wait for a silent disk."""
        chat = ("chat", self.model, "-p", "In Rust,", "-n", 4, "--backend", "cpu", "--io", "buffered",
                "--io-engine", "threads")
        for _ in self.ends("read", chat, codes=(130, -signal.SIGINT), pauses=(3,)):
            pass
        serve = ("serve", self.model, "--port", 0, "--backend", "cpu", "-c", 256)
        code = self.interrupted(serve, "read", 1)  # the residents: nobody can be answered yet
        self.expect(code == 130, f"serve while it loads: {code}")
        code = self.interrupted(serve, "read", 1, end=signal.SIGTERM)
        self.expect(code == 143, f"serve while it loads, SIGTERM: {code}")
        with Served(self.program, self.model) as server:
            self.expect(server.wait_until_ready(), "serve does not start")
            code, said = server.end()
            self.expect(code == 0 and "ending" in said, f"serve that rests: {code} {said}")
        self.served_request()

    def served_request(self):
        """A request waits for the disk: the first signal lets it go on, the second ends the server."""
        env = dict(LD_PRELOAD=str(self.shim), MOEPACK_FAULT="stall-60:read:20")
        with Served(self.program, self.model, "--io", "buffered", "--io-engine", "threads",
                    env=env) as server:
            self.expect(server.wait_until_ready(), "serve does not start")
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                body = json.dumps({"prompt": "In Rust, ownership means that", "max_tokens": 8})
                client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
                               f"{len(body)}\r\nContent-Type: application/json\r\n\r\n{body}".encode())
                time.sleep(2)
                server.process.send_signal(signal.SIGINT)
                time.sleep(1)
                self.expect(server.process.poll() is None, "serve ended before its request")
                server.process.send_signal(signal.SIGINT)
                try:
                    self.expect(server.process.wait(ENDS_WITHIN) == 130, "serve: exit status")
                except subprocess.TimeoutExpired:
                    self.expect(False, "serve: Ctrl-C twice did not end it")

    def a_pause(self):
        """A disk that is silent for ten seconds: a line, and then the right answer."""
        args = ("run", self.model, "-p", "In Rust,", "-n", 4, "--ignore-eos", "--cpu", "scalar",
                "--io", "buffered", "--io-engine", "threads")
        undisturbed = self.succeeds(*args)
        last = self.moments("read", args, lambda: None)[-1]
        start = time.monotonic()
        result = self.run(*args, fault=f"stall-10:read:{last}")
        self.expect(result.returncode == 0 and result.stdout == undisturbed.stdout,
                    f"after a pause: {result.returncode} {result.stderr}")
        self.expect(time.monotonic() - start >= 10, "there was no pause")
        self.expect("the disk has given nothing" in result.stderr, f"no line: {result.stderr}")


def main():
    args = options(__doc__, shim=True).parse_args()
    if args.shim is None:
        print("SKIPPED: nothing can be interrupted beside the sanitizers' libraries")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        checks = Interrupts(args, Path(scratch))
        checks.readers()
        checks.streams()
        checks.measures()
        checks.saved_prompts()
        checks.writers()
        checks.talkers()
        checks.a_pause()
        return conclude(checks.failures, f"{checks.runs} runs, {checks.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

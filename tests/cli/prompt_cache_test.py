#!/usr/bin/env python3
"""`moepack run --prompt-cache`: the same answers with and without the file, what is said of it, and
files that are refused and left alone."""
import json
import os
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options

TEXT = "In Rust, ownership means that every value has one owner, and when the owner goes out of scope"


class Checks(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch)
        self.model = scratch / "model"
        self.file = scratch / "prompt.cache"
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")

    def answer(self, text, *flags):
        """The JSON of a run, and what it said."""
        done = self.succeeds("run", self.model, "-p", text, "-n", 8, "--ignore-eos", "--json", *flags)
        return json.loads(done.stdout), done.stderr

    def same_answers(self, *flags):
        self.file.unlink(missing_ok=True)
        cached = ("--prompt-cache", self.file, *flags)
        plain, _ = self.answer(TEXT, *flags)
        tokens = plain["prompt_tokens"]
        self.expect(plain["prompt_tokens_reused"] == 0, "reused without a file")
        for what, text, reused, words in (
                ("new", TEXT, 0, ["prompt.cache is new", f"{tokens - 1} saved in it"]),
                ("same", TEXT, tokens - 1, [f"{tokens - 1} of {tokens} tokens taken"]),
                ("longer", TEXT + " of the block", tokens - 1, ["tokens taken", "saved in it"]),
                ("other", "Once upon a time, far away", 0, ["another from token", "saved in it"])):
            got, said = self.answer(text, *cached)
            wanted, _ = self.answer(text, *flags)
            name = f"{what} {flags}"
            self.expect(got["tokens"] == wanted["tokens"] and got["text"] == wanted["text"],
                        f"{name}: {got['text']!r}, not {wanted['text']!r}")
            self.expect(got["prompt_tokens_reused"] == reused, f"{name}: {got['prompt_tokens_reused']}")
            self.expect(all(word in said for word in words), f"{name}: {said}")
        self.expect(os.listdir(self.scratch).count("prompt.cache") == 1
                    and not [n for n in os.listdir(self.scratch) if ".tmp" in n], "files left")

    def read_only(self):
        self.file.unlink(missing_ok=True)
        self.answer(TEXT, "--prompt-cache", self.file)
        before = self.file.read_bytes()
        prompts = self.scratch / "prompts.jsonl"
        texts = [TEXT + " one", TEXT + " two", "Something else"]
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
        lines = self.succeeds("run", self.model, "--prompts-file", prompts, "-n", 4, "--ignore-eos",
                              "--prompt-cache", self.file, "--prompt-cache-ro").stdout.splitlines()
        plain = self.succeeds("run", self.model, "--prompts-file", prompts, "-n", 4,
                              "--ignore-eos").stdout.splitlines()
        got = [json.loads(line) for line in lines]
        self.expect([g["tokens"] for g in got] == [json.loads(p)["tokens"] for p in plain],
                    "answers of several prompts")
        self.expect([g["prompt_tokens_reused"] > 0 for g in got] == [True, True, False],
                    "each prompt goes on from the file")
        self.expect(self.file.read_bytes() == before, "the file was changed")

    def errors(self):
        def refused(what, needles, *flags, text=TEXT):
            before = self.file.read_bytes()
            self.refuses(what, needles, "run", self.model, "-p", text, "-n", 1, "--prompt-cache",
                         self.file, *flags)
            self.expect(self.file.read_bytes() == before, f"{what}: the file was changed")

        good = self.file.read_bytes()
        refused("another encoding", ["prompt.cache", "offset", "--kv-cache-type bf16"],
                "--kv-cache-type", "f32")
        refused("a short context", ["prompt.cache", "offset", "context of 8", "-c"], "-c", 8, text="In")
        for what, data, needles in (
                ("cut", good[:-1], ["prompt.cache", "offset 40"]),
                ("empty", b"", ["prompt.cache", "offset 0"]),
                ("text", b"My notes of last year, which nobody should overwrite.\n" * 9, ["offset 0"]),
                ("damaged tokens", good[:60] + b"\xff" + good[61:], ["offset", "checksum"]),
                ("damaged state", good[:-900] + b"\xff" + good[-899:], ["offset", "checksum"]),
                ("damaged end", good[:-1] + bytes([good[-1] ^ 1]), ["offset", "checksum"])):
            self.file.write_bytes(data)
            refused(what, [*needles, "--prompt-cache"])
            refused(f"{what}, read only", [*needles, "--prompt-cache"], "--prompt-cache-ro")
        self.file.unlink()
        run = ("run", self.model, "-p", TEXT, "-n", 1)
        self.refuses("a directory", ["model"], *run, "--prompt-cache", self.model)
        self.refuses("no such directory", ["nowhere"], *run, "--prompt-cache",
                     self.scratch / "nowhere" / "file")
        self.refuses("stdout", ["--prompt-cache"], *run, "--prompt-cache", "-")
        self.refuses("read only, of nothing", ["--prompt-cache FILE"], *run, "--prompt-cache-ro")
        os.symlink(self.scratch / "elsewhere", self.file)
        self.answer(TEXT, "--prompt-cache", self.file)
        self.expect(self.file.is_symlink() and (self.scratch / "elsewhere").is_file(), "a link")

    def statistics(self):
        got, said = self.answer(TEXT, "--chunk", 64, "--activations", "f32", "--kv-cache-type", "f16")
        self.expect((got["chunk"], got["activations"], got["kv_cache_type"]) == (64, "f32", "f16"),
                    f"statistics {got}")
        self.expect("activations: f32, keys and values: f16, chunk: 64" in said, said)
        got, _ = self.answer(TEXT)
        self.expect(got["chunk"] in (32, 64, 128, 256, 512, 1024, 2048), f"automatic chunk {got['chunk']}")


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-prompt-cache-") as scratch:
        checks = Checks(args, Path(scratch))
        checks.same_answers()
        checks.same_answers("--backend", "reference")
        checks.read_only()
        checks.errors()
        checks.statistics()
        return conclude(checks.failures, f"{checks.checks} checks, {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

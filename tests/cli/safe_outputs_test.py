#!/usr/bin/env python3
"""No command writes over what it reads, a limit of file sizes is an error like a full disk, and of
two imports into one directory one is refused."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cli_runner import CliRunner, conclude, options, tree_hash

READ = "is read by this command"
SIZE_LIMIT = 8  # blocks of ulimit -f


class Checks(CliRunner):
    TIMEOUT = 120

    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.source = scratch / "source"
        shutil.copytree(args.checkpoint, self.source)
        self.model = scratch / "model"
        self.succeeds("convert", self.source, "-o", self.model, "--quiet")
        self.text = scratch / "text.txt"
        self.text.write_text("one two three four five six seven eight nine ten " * 4)
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([5, 6, 7]))

    def keeps(self, what, path, *args):
        """Expects that `args`, of which `path` is an output and read, are refused by its name."""
        before = tree_hash(self.scratch)
        self.is_error(what, self.run(*args), [f"{path}: {READ}", "name another file"])
        self.expect(tree_hash(self.scratch) == before, f"{what}: something was changed")

    def logits(self, out, ids=None):
        return "logits", self.model, "--token-ids", ids or self.ids, "-o", out, "-t", 1

    # ---- inputs ----

    def model_files(self):
        outputs = ["config.json", "model_weights.bin", "model_weights.json", "tokenizer.json",
                   "packed_experts/layer_00.bin", "packed_experts/layout.json"]
        for name in outputs:
            path = self.model / name
            self.keeps(f"logits over {name}", path, *self.logits(path))
            self.keeps(f"extract over {name}", path, "extract", self.model, "model.norm.weight", "-o",
                       path)
            self.keeps(f"profile over {name}", path, "profile", self.model, "-f", self.text, "-c", 8,
                       "-o", path)
            self.keeps(f"hot experts over {name}", path, "profile", self.model, "-f", self.text, "-c",
                       8, "--top", 1, "--hot-experts", path)
            self.keeps(f"bench --timeline over {name}", path, "bench", self.model, "-p", 4, "-n", 1,
                       "-r", 1, "--timeline", path)
            for flag in ("--trace", "--timeline"):
                self.keeps(f"run {flag} over {name}", path, "run", self.model, "-p", "a", "-n", 1, flag, path)
            self.keeps(f"perplexity's base over {name}", path, "perplexity", self.model, "-f", self.text, "-c", 8,
                       "--kl-divergence-base", path)
            for flag in ("-o", "--measurements"):
                self.keeps(f"sensitivity {flag} over {name}", path, "sensitivity", self.model,
                           "--calibration", self.scratch / "none", "--target-bpw", 3, "--restart",
                           flag, path)

    def checkpoint_files(self):
        shard = next(self.source.glob("*.safetensors"))
        for path in (shard, self.source / "config.json"):
            self.keeps(f"index over {path.name}", path, "index", self.source, "-o", path)
            self.keeps(f"extract over {path.name}", path, "extract", self.source,
                       "model.norm.weight", "-o", path)
        self.keeps("extract over its file", shard, "extract", shard, "model.norm.weight", "-o", shard)
        pack = self.model / "packed_experts"
        layer = pack / "layer_01.bin"
        self.keeps("extract over its pack", layer, "extract", pack,
                   "model.layers.0.mlp.experts.0.gate_proj", "-o", layer)

    def lone_files(self):
        self.keeps("logits over its ids", self.ids, *self.logits(self.ids))
        self.keeps("profile over its text", self.text, "profile", self.model, "-f", self.text, "-c", 8,
                   "-o", self.text)

    def other_names(self):
        """Links lead to what is replaced, and links of a model to what it reads."""
        link = self.scratch / "link"
        link.symlink_to(self.model / "config.json")
        self.keeps("a link to the model", link, *self.logits(link))
        link.unlink()
        linked = self.scratch / "linked"
        linked.mkdir()
        for entry in self.model.iterdir():
            (linked / entry.name).symlink_to(entry)
        for name in ("config.json", "packed_experts/layer_00.bin"):
            path = self.model / name
            self.keeps(f"{name} of a model of links", path, "logits", linked, "--token-ids", self.ids,
                       "-o", path)
        shutil.rmtree(linked)
        dotted = f"{self.model}/../model/./config.json"
        self.keeps("a path with dots", dotted, *self.logits(dotted))

    def still_written(self):
        """Results may stand in a model's directory, and be written anew there."""
        for name in ("logits.f32", "packed_experts/hot.json"):
            for _ in range(2):
                self.succeeds(*self.logits(self.model / name))
            (self.model / name).unlink()
        counts = self.scratch / "counts.json"
        profile = ("profile", self.model, "-f", self.text, "-c", 8, "-o", counts, "--quiet")
        self.succeeds(*profile)
        self.succeeds(*profile, "--add", counts)
        self.keeps("hot experts over an added profile", counts, "profile", "--add", counts, "--top", 1,
                   "--hot-experts", counts)
        counts.unlink()

    # ---- limits ----

    def size_limit(self):
        """A file beyond `ulimit -f` is a failed write, and not the end without a word."""
        out = self.scratch / "limited"
        many = self.scratch / "many.json"
        many.write_text(json.dumps([i % 50 for i in range(40)]))
        commands = {
            "convert": ("convert", self.source, "-o", out, "--quiet"),
            "extract": ("extract", self.model, "lm_head", "-o", out),
            "logits": self.logits(out, many),
            "quantize": ("quantize", self.model, "--name", "limited", "--bits", 4, "--method", "rtn",
                         "--quiet"),
            "export": ("export", self.model, "-o", out, "--quiet", "--no-tokenizer"),
            "calibrate": ("calibrate", self.model, "-f", self.text, "-o", out, "--quiet"),
        }
        for name, args in commands.items():
            result = subprocess.run(
                ["sh", "-c", f'ulimit -f {SIZE_LIMIT}; exec "$@"', "sh", self.program,
                 *map(str, args)], capture_output=True, text=True, check=False, timeout=self.TIMEOUT)
            self.is_error(f"{name} within a size limit", result, ["File too large", "ulimit -f"])
            shutil.rmtree(self.model / "packed_experts_limited", ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)
            out.unlink(missing_ok=True)

    # ---- two imports ----

    def two_imports(self):
        if self.shim is None:
            print("SKIPPED: two imports, without the shim that delays one")
            return
        place, stalled = self.scratch / "exported", self.scratch / "stalled"
        self.succeeds("export", self.model, "-o", place, "--quiet", "--no-tokenizer")
        before = tree_hash(place)
        env = {**os.environ, "LD_PRELOAD": str(self.shim), "MOEPACK_FAULT": "stall-3:write:1",
               "MOEPACK_STALLED": str(stalled)}
        first = subprocess.Popen([self.program, "import", place, "--quiet"], env=env,
                                 stderr=subprocess.PIPE)
        while not stalled.exists() and first.poll() is None:
            time.sleep(0.01)
        for path in (place, place / "packed_experts"):
            self.is_error(f"a second import of {path.name}", self.run("import", path, "--quiet"),
                          [str(path), "another command is writing there"])
        self.expect(self.run("import", place, "--dry-run", "--quiet").returncode == 0,
                    "a dry run beside an import")
        error = first.communicate(timeout=self.TIMEOUT)[1]
        self.expect(first.returncode == 0, f"the first import: {error}")
        self.expect(tree_hash(place) != before, "nothing was imported")
        self.succeeds("import", place, "--quiet")
        self.succeeds("verify", place, "--quiet")


def main():
    args = options(__doc__, shim=True).parse_args()
    args.program = args.program.resolve()
    with tempfile.TemporaryDirectory(prefix="moepack-safe-outputs-") as scratch:
        checks = Checks(args, Path(scratch))
        checks.model_files()
        checks.checkpoint_files()
        checks.lone_files()
        checks.other_names()
        checks.still_written()
        checks.size_limit()
        checks.two_imports()
        return conclude(checks.failures, f"{checks.checks} checks of {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A dry run says what the run would: it refuses the same, in the same words, and needs the same
space, also where an interrupted command has finished a part."""
import json
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options, tree_hash


class Checks(CliRunner):
    TIMEOUT = 120

    def __init__(self, args, scratch):
        super().__init__(args.program, scratch)
        self.model = scratch / "model"
        self.source = args.checkpoint
        self.succeeds("convert", self.source, "-o", self.model, "--quiet")
        self.uses = scratch / "uses.json"
        text = scratch / "text.txt"
        text.write_text("one two three four five six seven eight nine ten " * 4)
        self.succeeds("profile", self.model, "-f", text, "-c", 8, "-o", self.uses, "--quiet")

    def needed(self, *args):
        done = self.succeeds(*args, "--json", "--quiet")
        return json.loads(done.stdout)["needed_bytes"] if done.stdout else None

    def interrupted(self, name, output, args, other):
        """`args` write to `output`; `other` changes what they would make."""
        whole = self.needed(*args, "--dry-run")
        self.expect(not output.exists(), f"{name}: a dry run wrote")
        one = self.needed(*args, "--dry-run", "--layers", 0)
        self.succeeds(*args, "--layers", 0, "--quiet")
        before = tree_hash(output)
        result = self.run(*args, *other, "--dry-run")
        self.is_error(f"{name}: dry, of something else", result, ["holds an interrupted", "--restart"])
        self.expect(self.run(*args, *other).stderr == result.stderr, f"{name}: other words")
        self.expect(self.needed(*args, *other, "--dry-run", "--restart") is not None,
                    f"{name}: dry, with --restart")
        rest = self.needed(*args, "--dry-run")
        self.expect(tree_hash(output) == before, f"{name}: a dry run changed the output")
        self.expect(one is not None and one <= whole and rest < whole,
                    f"{name}: needs {whole}, of layer 0 {one}, then {rest}")
        layer = next(output.rglob("layer_00.bin"))
        kept = layer.read_bytes()
        layer.unlink()
        self.expect(self.needed(*args, "--dry-run") == rest + len(kept), f"{name}: a layer is gone")
        layer.write_bytes(kept)
        self.expect(self.needed(*args) == rest, f"{name}: the run needs other space than {rest}")

    def layers_of_no_model(self):
        out = self.scratch / "none"
        for args in (("convert", self.source, "-o", out), ("quantize", self.model, "--name", "none",
                                                           "--bits", 4, "--method", "rtn")):
            dry = self.run(*args, "--layers", 99, "--dry-run")
            self.is_error(f"{args[0]}: no such layer", dry, ["99"])
            self.expect(self.run(*args, "--layers", 99).stderr == dry.stderr,
                        f"{args[0]}: no such layer, other words")

    def all(self):
        place = self.scratch / "converted"
        self.interrupted("convert", place, ("convert", self.source, "-o", place),
                         ("--expert-format", "q8"))
        place = self.model / "packed_experts_q"
        self.interrupted("quantize", place, ("quantize", self.model, "--name", "q", "--bits", 3,
                                             "--method", "rtn"), ("--group-size", 32))
        place = self.model / "packed_experts_order"
        self.interrupted("convert PACK", place,
                         ("convert", self.model / "packed_experts", "-o", place, "--row-order",
                          "panels16"), ("--page-size", 8192))
        place = self.model / "packed_experts_t"
        self.interrupted("tier", place, ("tier", self.model, "--profile", self.uses, "--name", "t",
                                         "--method", "rtn"), ("--group-size", 32))
        self.layers_of_no_model()


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-dry-run-") as scratch:
        checks = Checks(args, Path(scratch))
        checks.all()
        return conclude(checks.failures, f"{checks.checks} checks of {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Models whose first layer has no experts (DeepSeek V3, GLM 4.5, Kimi K2) take every way from a
calibration to a tiered pack, from a profile to a pinned cache and from a trace to a replay."""
import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import checkpoint_files as files
from cli_runner import CliRunner, conclude
from gguf_latent_test import CONFIG, EXPERTS, LAYERS, VOCABULARY, Model

TOKENS = 600
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


class Tester(CliRunner):
    def __init__(self, program, scratch):
        super().__init__(program, scratch)
        checkpoint = scratch / "checkpoint"
        checkpoint.mkdir()
        (checkpoint / "config.json").write_text(json.dumps(CONFIG))
        files.write_tensors(checkpoint / files.SHARD, Model(False).twin)
        self.model = scratch / "model"
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([i * i * 37 % VOCABULARY for i in range(TOKENS)]))
        self.calibration = scratch / "calibration"
        self.profile = scratch / "profile.json"
        # So small experts would be padding alone.
        self.succeeds("convert", checkpoint, "-o", self.model, "--page-size", 64, "--quiet")
        shutil.rmtree(checkpoint)  # or packs would come from it, with pages of 4096

    def json_of(self, *args):
        result = self.succeeds(*args, "--json")
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def with_model(self, command, *args):
        return (command, self.model, "--token-ids", self.ids, *args)


def check_profile(test):
    """Layer 0 has no uses; the profile can be read wherever profiles are."""
    hot = test.scratch / "hot.json"
    result = test.succeeds(*test.with_model("profile", "--top", 3, "--hot-experts", hot, "-o",
                                            test.profile))
    test.expect("layer   0: no uses" in result.stderr, f"profile: {result.stderr}")
    test.expect(f"of {(LAYERS - 1) * EXPERTS} experts are hot" in result.stderr, "hot experts")
    counts = [layer["counts"] for layer in json.loads(test.profile.read_text())["layers"]]
    test.expect(counts[0] == [0] * EXPERTS and sum(counts[1]) == 2 * TOKENS, f"counts {counts}")
    test.succeeds("profile", "--add", test.profile, "-o", test.scratch / "again.json", "--quiet")
    test.succeeds(*test.with_model("perplexity", "-c", 64, "--pin", test.profile))
    return hot


def check_tier(test, hot):
    report = test.json_of("tier", test.model, "--name", "hot", "--hot-experts", hot,
                          "--group-size", 32, "--method", "rtn")
    test.expect(report.get("finished") is True, f"tier: {report}")
    test.succeeds("verify", test.model, "--pack", "hot", "--quiet")
    test.succeeds(*test.with_model("perplexity", "-c", 64, "--pack", "hot"))


def check_calibration(test):
    plan = test.json_of(*test.with_model("calibrate", "-o", test.calibration, "--dry-run"))
    test.expect(plan.get("estimated_seconds", 0) > 0, f"dry run: {plan}")
    report = test.json_of(*test.with_model("calibrate", "-o", test.calibration, "-c", 64))
    layers = report.get("layers", [])
    test.expect(len(layers) == LAYERS and layers[0] == {"layer": 0, "dense": True}, f"{layers}")
    test.expect(all("min_tokens" in layer for layer in layers[1:]), f"{layers}")
    test.succeeds("profile", "--calibration", test.calibration, "-o", test.scratch / "c.json",
                  "--quiet")
    test.succeeds("quantize", test.model, "--name", "q", "--method", "gptq", "--group-size", 32,
                  "--calibration", test.calibration, "--bits", 2, "--quiet")


def check_sensitivity(test):
    """The size that an allocation promises is that of the pack, and of experts that there are."""
    allocation = test.scratch / "bits.json"
    flags = ("sensitivity", test.model, "--calibration", test.calibration, "--group-size", 32,
             "--bits", "2,4")
    plan = test.json_of(*flags, "--dry-run")
    test.expect(plan.get("estimated_seconds", 0) > 0, f"dry run: {plan}")
    uniform = test.json_of(*flags, "--target-bpw", 3.7, "-o", allocation)
    table = json.loads((test.model / "sensitivity.json").read_text())
    test.expect(table["expert_layers"] == LAYERS - 1, f"{table['expert_layers']} expert layers")
    test.expect(table["layers"][0] == {"layer": 0, "dense": True}, f"{table['layers'][0]}")
    bits = json.loads(allocation.read_text())
    test.expect(bits["layers"][0] == {"layer": 0, "dense": True}, f"{bits['layers'][0]}")
    widths = [bits["layers"][1][p] for p in PROJECTIONS]
    test.expect(all(len(w) == EXPERTS for w in widths), f"widths {widths}")
    again = test.scratch / "again.bits"
    test.succeeds(*flags, "--target-bpw", 3.7, "-o", again, "--explain", "--quiet")
    test.expect(again.read_bytes() == allocation.read_bytes(), "measurements taken up again")
    test.succeeds("tier", test.model, "--name", "mixed", "--allocation", allocation, "--method", "rtn",
                  "--group-size", 32, "--quiet")
    pack = test.model / "packed_experts_mixed"
    size = sum(path.stat().st_size for path in pack.glob("layer_*.bin"))
    test.expect(size == bits["forecast"]["pack_bytes"], f"{size} bytes, {bits['forecast']}")
    bits["layers"][1] = {"layer": 1, "dense": True}
    (test.scratch / "other.bits").write_text(json.dumps(bits))
    test.refuses("widths of another model", ["layer 1 has no experts"], "tier", test.model, "--name",
                 "no", "--allocation", test.scratch / "other.bits", "--method", "rtn", "--quiet")
    test.expect(uniform["allocation"]["pack_bytes"] == size, f"{uniform}")


def check_trace(test):
    trace = test.scratch / "trace.trc"
    test.succeeds("bench", test.model, "-p", 16, "-n", 8, "-r", 1, "--trace", trace)
    replay = test.succeeds("bench", "--replay", trace).stdout
    test.expect(bool(replay), "replay")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-dense-") as scratch:
        test = Tester(args.program, Path(scratch))
        check_tier(test, check_profile(test))
        for check in (check_calibration, check_sensitivity, check_trace):
            try:
                check(test)
            except (OSError, LookupError, ValueError) as error:  # after what failed before
                test.failures.append(f"{check.__name__}: {error!r}")
        return conclude(test.failures, f"{test.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""`--hot-profile` and what goes with it at the command line, on a GPU or on a processor that plays one:
the same logits with and without a profile, profiles that are refused, what is said, reports that are
profiles again; layers shared by several devices. Exit 77 where Vulkan finds no device."""
import json
import struct
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options

TEXT = "In Rust, ownership means that every value has one owner. "


class Checks(CliRunner):
    def __init__(self, args, scratch):
        super().__init__(args.program, scratch)
        self.model = scratch / "model"
        self.text = scratch / "text"
        self.profile = scratch / "profile.json"
        self.text.write_text(TEXT * 8)
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")
        self.succeeds("profile", self.model, "-f", self.text, "-o", self.profile, "--quiet",
                      "--max-tokens", 128)
        self.lanes = ("--backend", "vulkan", "--cold-experts", "cpu", "--threads", 2, "--chunk", 4)

    def has_device(self):
        result = self.run("plan", self.model, "--backend", "vulkan", "-c", 64, "--json")
        return result.returncode == 0 and \
            "not here" not in json.loads(result.stdout)["device"]["name"]

    def share(self):
        """--vram-mb with which some experts and not all fit."""
        device = json.loads(self.succeeds("plan", self.model, *self.lanes, "-c", 64,
                                          "--json").stdout)["device"]
        fixed = device["total"] - device["experts"]
        return max(1, (fixed + device["all_experts"] // 2) >> 20)

    def logits(self, *flags):
        ids = self.scratch / "ids"
        ids.write_text("[1, 17, 5, 9, 30, 2, 8, 44, 12, 7]")
        out = self.scratch / "logits.bin"
        result = self.succeeds("logits", self.model, "--token-ids", ids, "-o", out, *flags)
        data = out.read_bytes()
        out.unlink()
        return struct.unpack(f"<{len(data) // 4}f", data), result.stderr

    def same_logits(self, vram):
        flags = (*self.lanes, "--vram-mb", vram, "--activations", "f32")
        reference, _ = self.logits("--backend", "reference")
        largest = max(map(abs, reference))
        for more in ((), ("--hot-profile", self.profile),
                     ("--hot-profile", self.profile, "--hot-weighting", "pressure"),
                     ("--hot-profile", self.profile, "--hot-weighting", "balanced")):
            given, said = self.logits(*flags, *more)
            error = max(abs(a - b) for a, b in zip(given, reference)) / largest
            self.expect(len(given) == len(reference) and error < 1e-3, f"{more}: off by {error}")
            self.expect(("% of its uses" in said) == bool(more), f"{more}: {said}")

    def refusals(self, vram):
        flags = ("run", self.model, "-p", "a", "-n", 1, "-c", 64, "--vram-mb", vram)
        lanes = (*flags, *self.lanes)
        other = json.loads(self.profile.read_text())
        other["source_fingerprint"] = "0000000000000001"
        other["model"] = "another"
        for name, text, needles in (
                ("other.json", json.dumps(other), ["other.json", "another"]),
                ("cut.json", self.profile.read_text()[:200], ["cut.json"]),
                ("empty.json", "", ["empty.json"]),
                ("words.json", "no profile at all", ["words.json"])):
            path = self.scratch / name
            path.write_text(text)
            self.refuses(name, needles, *lanes, "--hot-profile", path)
            self.refuses(f"{name}, cpu", needles, *flags, "--backend", "cpu", "--cold-experts",
                         "auto", "--hot-profile", path)
        self.refuses("no file", ["none.json"], *lanes, "--hot-profile", self.scratch / "none.json")
        self.refuses("a weighting", ["--hot-weighting"], *lanes, "--hot-weighting", "heavy")
        self.refuses("a rate", ["--hot-update-rate"], *lanes, "--hot-update-rate", "1.5")
        self.refuses("nothing kept", ["--hot-profile", "--cold-experts"], *flags, "--backend",
                     "vulkan", "--hot-profile", self.profile)

    def said(self):
        flags = ("run", self.model, "-p", "a", "-n", 1, "--cold-experts", "auto", "--hot-profile",
                 self.profile)
        for backend, why in (("cpu", "the processor computes"), ("vulkan", "on the GPU")):
            result = self.succeeds(*flags, "--backend", backend)
            self.expect("--hot-profile is not used" in result.stderr and why in result.stderr,
                        f"{backend}: {result.stderr}")

    def adapts(self, vram):
        prompts = self.scratch / "prompts"
        prompts.write_text("".join(json.dumps({"prompt": TEXT[:n]}) + "\n" for n in (8, 20, 30, 12)))
        report = self.scratch / "lanes.json"
        self.succeeds("run", self.model, *self.lanes, "--vram-mb", vram, "--prompts-file", prompts,
                      "-c", 64,
                      "-n", 12, "--ignore-eos", "--hot-update-rate", 0.2, "--lane-report", report)
        if not report.exists():
            return
        lanes = json.loads(report.read_text())
        summary = lanes["summary"]
        self.expect(lanes["schema"] == "llama.cpp.moe_layer_opt_perf.v1" and lanes["enabled"],
                    "the report's schema")
        self.expect(summary["hot_slots_total"] > 0 and summary["cold_slots_total"] > 0,
                    f"both lanes: {summary}")
        for layer in lanes["layers"]:
            pairs = layer["hot_experts"] + layer["cold_experts"]
            self.expect(sum(n for _, n in pairs) ==
                        layer["hot_slots_total"] + layer["cold_slots_total"], f"{layer['layer']}")
        self.succeeds("run", self.model, *self.lanes, "--vram-mb", vram, "-p", "a", "-n", 2, "-c", 64,
                      "--hot-profile", report)

    def bench(self, vram):
        flags = ("bench", self.model, *self.lanes, "--vram-mb", vram, "-p", 0, "-n", 6, "-r", 2,
                 "-o", "json", "--hot-profile", self.profile)
        plain = json.loads(self.succeeds(*flags).stdout)[0]["lanes"]
        self.expect(plain["hot_slots"] > 0 and plain["cold_seconds"] > 0, f"lanes: {plain}")
        self.expect("fallback_reasons" not in plain, "counted unasked")
        report = self.scratch / "bench.json"
        counted = json.loads(self.succeeds(*flags, "--lane-report", report).stdout)[0]["lanes"]
        self.expect(set(counted["fallback_reasons"]) ==
                    {"zero_output", "no_cold", "threshold", "fetched"}, f"reasons: {counted}")
        self.expect(report.exists() and json.loads(report.read_text())["layers"],
                    "the report of bench")

    def devices(self):
        """Two devices, here one of them twice, give what one gives; lists that fit nothing."""
        one, _ = self.logits("--backend", "vulkan", "--device", 0)
        two, _ = self.logits("--backend", "vulkan", "--devices", "0,0")
        self.expect(one == two, "two devices: other logits")
        uneven, _ = self.logits("--backend", "vulkan", "--devices", "0,0", "--tensor-split", "3,1")
        self.expect(one == uneven, "3,1: other logits")
        named = json.loads(self.succeeds("plan", self.model, "--backend", "vulkan", "--devices",
                                         "0,0", "--tensor-split", "3,1", "-c", 64, "--json").stdout)
        self.expect("(layers 0 to 2)" in named["device"]["name"] and
                    "(layers 3 to 3)" in named["device"]["name"], named["device"]["name"])
        self.hot_devices()
        ids = self.scratch / "ids"
        run = ("logits", self.model, "--token-ids", ids, "-o", self.scratch / "x", "--backend",
               "vulkan")
        for needles, flags in (
                (["--tensor-split", "--devices"], ("--tensor-split", "1,1")),
                (["1 shares for 2"], ("--devices", "0,0", "--tensor-split", "1")),
                (["--tensor-split"], ("--devices", "0,0", "--tensor-split", "1,0")),
                (["9 devices", "4 layers"], ("--devices", ",".join("0" * 9))),
                (["--device"], ("--device", 0, "--devices", "0,0")),
                (["255"], ("--devices", "0,255")),
                (["layers 0 to", "--tensor-split"], ("--devices", "0,0", "--vram-mb", 1))):
            self.refuses(f"{flags}", needles, *run, *flags)

    def hot_devices(self):
        """Each of two devices keeps experts of its own layers by the profile, and reports them."""
        split = (*self.lanes, "--devices", "0,0", "--tensor-split", "1,1")
        device = json.loads(self.succeeds("plan", self.model, *split, "-c", 64,
                                          "--json").stdout)["device"]
        fixed = device["total"] - device["experts"]
        vram = max(1, (fixed + device["all_experts"] // 2 >> 20) * 5 // 8)
        reference, _ = self.logits("--backend", "reference")
        given, said = self.logits(*split, "--vram-mb", vram, "--hot-profile", self.profile,
                                  "--activations", "f32")
        error = max(abs(a - b) for a, b in zip(given, reference)) / max(map(abs, reference))
        self.expect(error < 1e-3 and "% of its uses" in said, f"two devices: {error}, {said}")
        report = self.scratch / "devices.json"
        self.succeeds("bench", self.model, *split, "--vram-mb", vram, "-p", 0, "-n", 6, "-r", 2,
                      "-o", "json", "--hot-profile", self.profile, "--hot-update-rate", 0.2,
                      "--lane-report", report)
        layers = json.loads(report.read_text())["layers"]
        self.expect([layer["layer"] for layer in layers] == list(range(4)),
                    f"layers of both devices: {layers}")


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        checks = Checks(args, Path(scratch))
        if not checks.has_device():
            print("SKIPPED: no Vulkan device")
            return 77
        vram = checks.share()
        checks.same_logits(vram)
        checks.refusals(vram)
        checks.said()
        checks.adapts(vram)
        checks.bench(vram)
        checks.devices()
        return conclude(checks.failures, f"{checks.checks} checks, {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

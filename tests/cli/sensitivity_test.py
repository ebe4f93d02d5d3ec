#!/usr/bin/env python3
"""moepack sensitivity: the same measurements whatever the threads and interruptions, allocations
whose sizes and predictions are counted here from the measurements, and one clear line for
everything that cannot work."""
import json
import os
import shutil
import subprocess
import sys

import calibration_files
from bits_fixtures import PROJECTIONS, Tester, divergence, main_with, near, record_bytes

WIDTHS = (2, 3, 4)


class SensitivityTester(Tester):
    def __init__(self, args, scratch):
        super().__init__(args, scratch)
        self.table = scratch / "m.json"

    def command(self, *args, calibration=None, table=None):
        return ("sensitivity", self.model, "--calibration", calibration or self.calibration,
                "--measurements", table or self.table, "--bits", ",".join(map(str, WIDTHS)),
                "--quiet", *args)

    def read(self):
        return json.loads(self.table.read_text())

    def uniform(self, bits):
        """The size of a pack with these widths of gate, up, down in all experts."""
        t = self.read()
        return t["num_layers"] * t["num_experts"] * record_bytes(
            (t["hidden_size"], t["expert_width"]), bits, t["page_size"])

    # ---- measurements ----

    def contents(self):
        report = self.report(*self.command())
        table, recorded = self.read(), calibration_files.read_manifest(self.calibration)
        self.expect(report.get("layers_resumed") == 0 and report["bits"] == list(WIDTHS) and
                    report["num_layers"] == 4 and report["num_experts"] == 12 and
                    report["method"] == "gptq" and "allocation" not in report, f"report: {report}")
        self.expect(table["format"] == "moepack.sensitivity" and table["bits"] == list(WIDTHS) and
                    table["hidden_size"] == table["expert_width"] == 256 and
                    table["source_fingerprint"] == recorded["source_fingerprint"] and
                    len(table["layers"]) == 4, "measurements: head")
        found = 0
        for number, layer in enumerate(table["layers"]):
            _, experts, _ = calibration_files.read_layer(self.calibration, number)
            for e, share in enumerate(layer["share"]):
                uses = sum(e in chosen for chosen in experts)
                self.expect(near(share, uses / len(experts)), f"share of layer {number} expert {e}")
            for projection in PROJECTIONS:
                sums = [sum(layer[projection][str(b)]) for b in WIDTHS]
                self.expect(all(len(layer[projection][str(b)]) == 12 for b in WIDTHS) and
                            sums[0] > 2 * sums[1] > 4 * sums[2] > 0,
                            f"layer {number} {projection}: {sums}")
            # Other texts may choose an expert that no token of this one chose.
            unseen = [[layer[p][str(b)][e] for b in WIDTHS] for p in PROJECTIONS
                      for e, share in enumerate(layer["share"]) if share == 0]
            self.expect(all(a > b > c > 0 for a, b, c in unseen), f"unseen in {number}: {unseen}")
            found += len(unseen)
            self.expect(all(near(a, b) for a, b in zip(layer["response"], self.response(number))),
                        f"response of layer {number}")
        self.expect(found > 0, "the calibration saw every expert: that is not tested")

    def response(self, layer):
        entry = calibration_files.read_manifest(self.calibration)["divergence_response"][layer]
        return list(entry.values()) if isinstance(entry, dict) else entry

    def resumed(self):
        """A second run only reads, without touching the file."""
        before = self.table.stat().st_mtime_ns
        report = self.report(*self.command())
        self.expect(report["layers_resumed"] == 4 and self.table.stat().st_mtime_ns == before,
                    "measured again")

    def read_only(self):
        """Whole measurements are only read, where nothing can be written too; others are told."""
        place = self.scratch / "read-only"
        place.mkdir()
        for name, layers in (("whole", 4), ("half", 2)):
            table = self.read()
            table["layers"] = table["layers"][:layers]
            (place / name).write_text(json.dumps(table))
        place.chmod(0o555)
        self.scratch.chmod(0o755)
        # Root writes anywhere.
        user = {"user": 65534} if os.geteuid() == 0 else {}
        results = {name: subprocess.run(
            [self.program, *map(str, self.command("--target-bpw", 3, table=place / name))],
            capture_output=True, text=True, check=False, timeout=self.TIMEOUT, **user)
                   for name in ("whole", "half")}
        self.expect(results["whole"].returncode == 0, f"read-only: {results['whole'].stderr}")
        self.is_error("read-only, unfinished", results["half"], ["read-only/half", "cannot create"])
        place.chmod(0o755)
        shutil.rmtree(place)

    def threads(self):
        expected = self.table.read_bytes()
        for threads in (1, 2, 5):
            other = self.scratch / "threads.json"
            self.succeeds(*self.command("-t", threads, table=other))
            self.expect(other.read_bytes() == expected, f"-t {threads}: other bytes")
            other.unlink()

    # ---- allocations ----

    def targets(self):
        shape = (256, 256)
        table = self.read()
        page = table["page_size"]
        weights = 3 * 4 * 12 * 256 * 256
        step = record_bytes(shape, (4, 4, 4), page) - record_bytes(shape, (4, 4, 3), page)
        output = self.scratch / "bits.json"
        before = None
        for flag, value in (("--target-bpw", 2.83), ("--target-bpw", 3), ("--target-gb", 0.0039),
                            ("--target-bpw", 3.5), ("--target-bpw", 4.2)):
            name = f"{flag} {value}"
            report = self.report(*self.command(flag, value, "-o", output))["allocation"]
            bits = json.loads(output.read_text())
            target = int(value * 1e9) if flag == "--target-gb" else int(value * weights / 8)
            size = sum(record_bytes(shape, [layer[p][e] for p in PROJECTIONS], page)
                       for layer in bits["layers"] for e in range(12))
            self.expect(report["target_bytes"] == bits["target_bytes"] == target, f"{name}: target")
            self.expect(report["pack_bytes"] == bits["forecast"]["pack_bytes"] == size,
                        f"{name}: size {size}, said {report['pack_bytes']}")
            self.expect(target - max(step, 0.005 * target) <= size <= target,
                        f"{name}: {size} of {target}")
            self.expect(near(report["bits_per_weight"], 8 * size / weights), f"{name}: bits")
            predicted = divergence(table, lambda l, p, e: bits["layers"][l][p][e])
            self.expect(near(report["predicted_divergence"], predicted), f"{name}: prediction")
            self.expect(report["gap"] == 0 and report["predicted_divergence"] <=
                        report["uniform_divergence"], f"{name}: {report}")
            self.expect(near(report["predicted_gain"],
                             1 - report["predicted_divergence"] / report["uniform_divergence"]),
                        f"{name}: gain")
            self.compare_layers(name, report, bits)
            self.compare_uniform(name, report, table)
            self.expect(before is None or predicted < before, f"{name}: larger and worse")
            before = predicted
        self.extremes(output)

    def compare_layers(self, name, report, bits):
        for entry, layer in zip(report["layers"], bits["layers"]):
            for short in ("gate", "up", "down"):
                self.expect(near(entry[f"mean_{short}_bits"], sum(layer[f"{short}_proj"]) / 12),
                            f"{name}: mean {short} bits")
        self.expect(near(sum(entry["predicted_divergence"] for entry in report["layers"]),
                         report["predicted_divergence"]), f"{name}: layers")

    def compare_uniform(self, name, report, table):
        for pack in report["uniform"]:
            widths = {f"{p}_proj": pack[f"{p}_bits"] for p in ("gate", "up", "down")}
            self.expect(pack["pack_bytes"] == self.uniform(list(widths.values())) and
                        near(pack["predicted_divergence"],
                             divergence(table, lambda l, p, e, w=widths: w[p])),
                        f"{name}: uniform {pack}")

    def extremes(self, output):
        """Exactly the smallest and the largest size are possible, also for experts without tokens."""
        for bits in (WIDTHS[0], WIDTHS[-1]):
            size = self.uniform((bits,) * 3)
            self.succeeds(*self.command("--target-gb", size / 1e9 + 1e-10, "-o", output))
            found = json.loads(output.read_text())
            used = {w for layer in found["layers"] for p in PROJECTIONS for w in layer[p]}
            self.expect(used == {bits}, f"the size of {bits} bits: widths {used}")
        output.unlink()

    def explained(self):
        result = self.run(*self.command("--target-bpw", 3, "--explain"))
        self.expect(result.returncode == 0 and "layer   0 expert" in result.stdout and
                    "bits of gate/up/down" in result.stdout, f"--explain: {result.stdout[:500]}")
        other = self.scratch / "dry.json"
        report = self.report(*self.command("--dry-run", table=other))
        self.expect(report["estimated_seconds"] > 0 and report["dry_run"] and
                    not other.exists(), f"--dry-run: {report}")

    # ---- interruptions ----

    def continues(self, name, expected):
        result = self.run(*self.command())
        self.expect(result.returncode == 0, f"{name}: next run: {result.stderr.strip()}")
        self.expect(self.table.read_bytes() == expected, f"{name}: other bytes")
        left = [p.name for p in self.scratch.iterdir() if p.name not in self.known]
        self.expect(not left, f"{name}: left {left}")

    def interruptions(self):
        if self.shim is None:
            return
        expected = self.table.read_bytes()
        self.known = {p.name for p in self.scratch.iterdir()}
        self.table.unlink()
        kills, failing = self.moments(*self.command())
        for op, n in kills:
            self.table.unlink(missing_ok=True)
            self.run(*self.command(), fault=f"kill-after:{op}:{n}")
            if self.table.exists():  # whole, whenever it is there
                layers = self.read()["layers"]
                self.expect(layers == json.loads(expected)["layers"][:len(layers)],
                            f"killed after {op} {n}: other layers")
            self.continues(f"killed after {op} {n}", expected)
        for error, op, n in failing:
            self.table.unlink(missing_ok=True)
            result = self.run(*self.command(), fault=f"{error}:{op}:{n}")
            self.expect(result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1,
                        f"{error} at {op} {n}: exit {result.returncode}, {result.stderr}")
            self.continues(f"{error} at {op} {n}", expected)

    # ---- refusals ----

    def refusals(self):
        output = self.scratch / "no.json"
        least, most = self.uniform((2, 2, 2)), self.uniform((4, 4, 4))
        self.refuses("far too small", ["target", str(least)],
                     *self.command("--target-bpw", 1, "-o", output))
        self.refuses("a page too small", ["target", str(least), str(least - 1)],
                     *self.command("--target-gb", (least - 0.9) / 1e9, "-o", output))
        self.refuses("too large", ["target", str(most)],
                     *self.command("--target-gb", 1, "-o", output))
        self.refuses("-o without a target", ["--target-bpw"], *self.command("-o", output))
        self.refuses("-o without a target, measured before", ["--target-bpw"],
                     *self.command("-o", output, table=self.scratch / "new.json"))
        self.refuses("two targets", ["--target"],
                     *self.command("--target-gb", 1, "--target-bpw", 3, "-o", output))
        for flag in ("--target-bpw", "--target-gb"):
            for value in ("nan", "inf", "0", "-1", "x", "1e300"):
                self.refuses(f"{flag} {value}", [flag], *self.command(flag, value))
            self.refuses(f"{flag} too large", ["too large"], *self.command(flag, 33))
        self.refuses("a width without format", ["--bits"], "sensitivity", self.model,
                     "--calibration", self.calibration, "--bits", "2,7")
        self.calibrations()
        self.tables()

    def calibrations(self):
        new = self.scratch / "new.json"

        def other(directory):
            path = directory / "calibration.json"
            manifest = json.loads(path.read_text())
            manifest.update(source_fingerprint="0123456789abcdef",
                            residents_checksum="0123456789abcdef")
            path.write_text(json.dumps(manifest))
        stranger = self.copy(self.calibration, "stranger", other)
        self.refuses("a calibration of another model", ["another model"],
                     *self.command("--target-bpw", 3, calibration=stranger, table=new))
        unprobed = self.scratch / "unprobed"
        self.calibrate(unprobed, "--probe-tokens", 0)
        self.refuses("a calibration without response", ["unprobed", "--probe-tokens"],
                     *self.command("--target-bpw", 3, calibration=unprobed, table=new))
        self.refuses("no calibration there", ["nowhere"],
                     *self.command(calibration=self.scratch / "nowhere", table=new))
        broken = self.copy(self.calibration, "flipped", flip_middle)
        self.refuses("a damaged calibration", ["layer_00.bin.zst"],
                     *self.command(calibration=broken, table=new))
        for path in (stranger, unprobed, broken):
            shutil.rmtree(path)

    def tables(self):
        """What lies at --measurements and is something else, or damaged, stays as it is."""
        whole = self.table.read_bytes()
        other_plan = self.edited(self.table, "plan.json", plan="0123456789abcdef")
        cases = [("measurements of something else", ["plan.json", "--restart"], other_plan)]
        for name, content in (("text", b"# notes\n"), ("json", b"{\"a\": 1}\n"), ("empty", b""),
                              ("cut", whole[:-20])):
            path = self.scratch / f"{name}.table"
            path.write_bytes(content)
            cases.append((f"{name} in --measurements", [f"{name}.table"], path))
        for what, needles, path in cases:
            before = path.read_bytes()
            self.refuses(what, needles, *self.command("--target-bpw", 3, table=path))
            self.expect(path.read_bytes() == before, f"{what}: changed")
            if path.stem in ("text", "json", "empty"):
                self.refuses(f"{what}, with --restart", [f"{path.name}: ", "no table of measurements"],
                             *self.command("--restart", table=path))
                self.expect(path.read_bytes() == before, f"{what}, --restart: changed")
        self.succeeds(*self.command("--restart", table=self.scratch / "cut.table"))
        for out in (other_plan, f"{self.scratch}/./plan.json"):
            self.refuses("one file for both", ["plan.json", "same file"],
                         *self.command("--target-bpw", 3, "-o", out, table=other_plan))
        self.succeeds(*self.command("--restart", table=other_plan))
        self.expect(other_plan.read_bytes() == whole, "--restart: other bytes")
        self.refuses("another method", ["--restart"], *self.command("--method", "rtn"))
        self.refuses("other rows", ["--restart"], *self.command("--rows", 32))


def flip_middle(directory):
    path = directory / "layer_00.bin.zst"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


if __name__ == "__main__":
    T = SensitivityTester
    sys.exit(main_with(T, (T.contents, T.resumed, T.read_only, T.threads, T.targets, T.explained,
                           T.interruptions, T.refusals)))

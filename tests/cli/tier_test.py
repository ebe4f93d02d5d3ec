#!/usr/bin/env python3
"""moepack tier: the widths that were asked for, expert by expert; the same bytes whether records are
taken from other packs or not, and after every interruption; flash-moe's manifest beside ours; one
clear line for everything that cannot work."""
import json
import shutil
import sys

from bits_fixtures import PROJECTIONS, Tester, divergence, main_with, near, record_bytes
from cli_runner import listing, tree_hash

SHAPE = (256, 256)
LAYERS, EXPERTS = 4, 12


def pack_bits(pack):
    """[layer][expert] -> widths of gate, up, down, as layout.json states them."""
    layout = json.loads((pack / "layout.json").read_text())
    layouts = [layout] + layout.get("layouts", [])
    widths = [[int(entry["formats"][p]["format"][1:]) for p in PROJECTIONS] for entry in layouts]
    return [[widths[layer.get("experts", {}).get(str(e), {}).get("layout", layer.get("layout", 0))]
             for e in range(EXPERTS)] for layer in layout["layers"]]


def without_manifest(model):
    (model / "packed_experts_hot" / "layout.json").unlink()


class TierTester(Tester):
    def __init__(self, args, scratch):
        super().__init__(args, scratch)
        self.table = self.model / "sensitivity.json"
        self.allocation = scratch / "bits.json"
        self.hot = scratch / "hot.json"
        self.profile = scratch / "profile.json"
        self.succeeds("sensitivity", self.model, "--calibration", self.calibration, "--target-bpw",
                      3, "-o", self.allocation, "--quiet")
        self.succeeds("profile", self.model, "-f", scratch / "text", "-o", self.profile,
                      "--max-tokens", 512, "--quiet")
        self.hot_ids = {str(l): [(5 * l + i) % EXPERTS for i in range(3 + l)]
                        for l in range(LAYERS)}
        self.write_hot(self.hot, self.hot_ids)

    def write_hot(self, path, ids, layers=LAYERS, experts=EXPERTS):
        total = sum(map(len, ids.values()))
        path.write_text(json.dumps({
            "threshold": None, "num_layers": layers, "num_experts": experts, "total_hot": total,
            "total_cold": layers * experts - total, "hot_experts": ids}))
        return path

    def tier(self, *args, method="gptq", model=None, name="hot", calibrated=True):
        known = ("--calibration", self.calibration) if calibrated else ()
        return ("tier", model or self.model, "--name", name, "--method", method, "--quiet", *known,
                *args)

    def listed(self, *args, **flags):
        return self.tier("--hot-experts", self.hot, *args, **flags)

    def pack(self, name="hot"):
        return self.model / f"packed_experts_{name}"

    def drop(self, *names):
        for name in names:
            shutil.rmtree(self.pack(name), ignore_errors=True)

    def quantize(self, name, bits, method="gptq"):
        self.succeeds("quantize", self.model, "--name", name, "--method", method, "--bits", bits,
                      "--calibration", self.calibration, "--quiet")

    def expected_hot(self, ids, hot, cold):
        return [[[hot if e in ids[str(l)] else cold] * 3 for e in range(EXPERTS)]
                for l in range(LAYERS)]

    # ---- what it makes ----

    def allocated(self):
        report = self.report(*self.tier("--allocation", self.allocation, name="alloc"))
        wanted = json.loads(self.allocation.read_text())
        bits = [[[layer[p][e] for p in PROJECTIONS] for e in range(EXPERTS)]
                for layer in wanted["layers"]]
        self.expect(pack_bits(self.pack("alloc")) == bits, "allocation: other widths")
        self.expect(len({tuple(b) for layer in bits for b in layer}) > 3, "allocation: too plain")
        page = json.loads((self.pack("alloc") / "layout.json").read_text())["page_size"]
        size = sum(record_bytes(SHAPE, b, page) for layer in bits for b in layer)
        files = sum(p.stat().st_size for p in self.pack("alloc").glob("layer_*.bin"))
        self.expect(size == files == report["pack_bytes"] == wanted["forecast"]["pack_bytes"],
                    f"allocation: {files} bytes, {size} counted")
        self.expect(report["finished"] and not report["tiered_manifest"] and
                    not (self.pack("alloc") / "tiered_manifest.json").exists() and
                    not (self.pack("alloc") / "hot_experts.json").exists(),
                    "allocation: a manifest that flash-moe cannot read")
        self.expect(near(report["predicted_divergence"], wanted["forecast"]["divergence"]) and
                    report["worthwhile"] == (report["predicted_gain"] >= 0.03),
                    f"allocation: forecast {report}")
        self.succeeds("verify", self.model, "--pack", "alloc")
        other = self.report(*self.tier("--allocation", self.allocation, "--reuse", "alloc",
                                       method="clip", name="clip", calibrated=False))
        self.expect(any("gptq" in note and "clip" in note for note in other["notes"]) and
                    "predicted_gain" not in other and other["records_reused"] == LAYERS * EXPERTS,
                    f"another method than measured: {other}")
        self.drop("clip")

    def listed_widths(self):
        report = self.report(*self.listed())
        self.expect(pack_bits(self.pack()) == self.expected_hot(self.hot_ids, 4, 2),
                    "list: other widths")
        self.expect(report["tiered_manifest"], f"list: {report}")
        table = json.loads(self.table.read_text())
        wanted = divergence(table, lambda l, p, e: 4 if e in self.hot_ids[str(l)] else 2)
        self.expect(near(report["predicted_divergence"], wanted), f"list: forecast {report}")
        written = json.loads((self.pack() / "hot_experts.json").read_text())
        self.expect(written["hot_experts"] == self.hot_ids, f"list: {written}")
        notes = self.report("verify", self.model, "--pack", "hot", "--quiet").get("notes")
        self.expect(notes == [], f"verify: {notes}")
        self.flashmoe_manifest()
        self.drop("hot")

    def flashmoe_manifest(self):
        """Offsets agree with the list, and either manifest leads to the same logits."""
        manifest = json.loads((self.pack() / "tiered_manifest.json").read_text())
        sizes = {4: record_bytes(SHAPE, (4, 4, 4), 1), 2: record_bytes(SHAPE, (2, 2, 2), 1)}
        self.expect((manifest["expert_size_4bit"], manifest["expert_size_2bit"]) ==
                    (sizes[4], sizes[2]), "tiered_manifest.json: sizes")
        for l in range(LAYERS):
            layer, at = manifest["layers"][str(l)], 0
            for e, expert in enumerate(layer["experts"]):
                bits = 4 if e in self.hot_ids[str(l)] else 2
                self.expect(expert == {"offset": at, "size": sizes[bits], "bits": bits},
                            f"tiered_manifest.json: layer {l} expert {e}: {expert}")
                at += sizes[bits]
            file = self.pack() / f"layer_{l:02}.bin"
            self.expect(layer["file_size"] == at == file.stat().st_size,
                        f"tiered_manifest.json: size of layer {l}")
        foreign = self.copy(self.model, "foreign", without_manifest)
        for model, name in ((self.model, "ours"), (foreign, "theirs")):
            self.succeeds("logits", model, "--pack", "hot", "--token-ids", self.scratch / "ids",
                          "-o", self.scratch / name)
        self.expect((self.scratch / "ours").read_bytes() == (self.scratch / "theirs").read_bytes(),
                    "other logits through tiered_manifest.json")
        listed = json.loads(self.succeeds("inspect", foreign / "packed_experts_hot",
                                          "--json").stdout)
        self.expect(not listed["packs"][0]["has_checksums"], "inspect: not flash-moe's manifest")
        shutil.rmtree(foreign)

    def profiled(self):
        """Hot are, of each layer, the fewest experts, most used first, that cover the share."""
        counts = [layer["counts"] for layer in json.loads(self.profile.read_text())["layers"]]
        for share in (0.8, 0.3):
            ids = {}
            for l, uses in enumerate(counts):
                ids[str(l)] = []
                for e in sorted(range(EXPERTS), key=lambda e, u=uses: (-u[e], e)):
                    if sum(uses[i] for i in ids[str(l)]) >= share * sum(uses):
                        break
                    ids[str(l)].append(e)
            flags = () if share == 0.8 else ("--coverage", share)
            self.report(*self.tier("--profile", self.profile, *flags, method="rtn", name="prof",
                                   calibrated=False))
            self.expect(pack_bits(self.pack("prof")) == self.expected_hot(ids, 4, 2),
                        f"--profile --coverage {share}: other widths")
            self.drop("prof")

    def other_widths(self):
        report = self.report(*self.listed("--hot-bits", 3, "--cold-bits", 2, name="three"))
        self.expect(pack_bits(self.pack("three")) == self.expected_hot(self.hot_ids, 3, 2),
                    "--hot-bits 3: other widths")
        self.expect(not report["tiered_manifest"] and
                    not (self.pack("three") / "tiered_manifest.json").exists(),
                    "--hot-bits 3: flash-moe has no such tier")
        # 32 inputs a group: not flash-moe's either.
        report = self.report(*self.listed("--group-size", 32, method="rtn", calibrated=False,
                                          name="small"))
        self.expect(not report["tiered_manifest"] and "predicted_gain" not in report and
                    any("sensitivity.json" in note for note in report["notes"]),
                    f"groups of 32: {report}")
        self.drop("three", "small")

    # ---- records of other packs ----

    def made(self, *args, **flags):
        """(hash, records taken over, report) of a new pack."""
        self.drop("hot")
        report = self.report(*self.listed(*args, **flags))
        return tree_hash(self.pack()), report.get("records_reused"), report

    def reused(self):
        hot_count = sum(map(len, self.hot_ids.values()))
        self.drop("alloc")
        plain, count, _ = self.made()
        self.expect(count == 0, f"{count} records from nowhere")
        self.quantize("q4", 4)
        some, count, _ = self.made()
        self.expect(count == hot_count and some == plain, f"hot records reused: {count}")
        self.quantize("q2", 2)
        both, count, _ = self.made("-t", 1)
        self.expect(count == LAYERS * EXPERTS and both == plain, f"all records reused: {count}")
        self.damaged()
        self.drop("hot", "q4", "q2")
        self.quantize("q4", 4, method="clip")  # with the calibration, but another method
        other, count, _ = self.made()
        self.expect(count == 0 and other == plain, f"records of another method: {count}")
        named, count, _ = self.made("--reuse", "q4")
        self.expect(count == hot_count and named != plain, f"--reuse: {count}")
        report = json.loads((self.pack() / "layout.json").read_text())["report"]
        self.expect("recipe" not in report, "--reuse: claims to be of its own recipe")
        self.records_are_copies()
        shutil.copytree(self.pack(), self.pack("impure"))
        again, count, _ = self.made()
        self.expect(count == 0 and again == plain, f"records of an impure pack: {count}")
        self.drop("q4", "impure", "hot")

    def records_are_copies(self):
        page = json.loads((self.pack() / "layout.json").read_text())["page_size"]
        large, small = record_bytes(SHAPE, (4, 4, 4), page), record_bytes(SHAPE, (2, 2, 2), page)
        for l in range(LAYERS):
            mine = (self.pack() / f"layer_{l:02}.bin").read_bytes()
            source = (self.pack("q4") / f"layer_{l:02}.bin").read_bytes()
            at = 0
            for e in range(EXPERTS):
                hot = e in self.hot_ids[str(l)]
                if hot:
                    self.expect(mine[at:at + large] == source[e * large:(e + 1) * large],
                                f"--reuse: layer {l} expert {e} is no copy")
                at += large if hot else small

    def damaged(self):
        """A flipped bit in a record that would be taken over is an error."""
        self.drop("hot")
        path = self.pack("q4") / "layer_00.bin"
        whole = path.read_bytes()
        page = json.loads((self.pack("q4") / "layout.json").read_text())["page_size"]
        expert = self.hot_ids["0"][1]
        offset = expert * record_bytes(SHAPE, (4, 4, 4), page)
        data = bytearray(whole)
        data[offset + 12345] ^= 16
        path.write_bytes(bytes(data))
        self.refuses("a damaged record", ["packed_experts_q4/layer_00.bin", f"offset {offset}",
                                          f"expert {expert} "], *self.listed())
        path.write_bytes(whole[:-4096])
        self.refuses("a truncated pack", ["packed_experts_q4/layer_00.bin"], *self.listed())
        path.write_bytes(whole)

    # ---- interruptions ----

    def continues(self, name, expected, left):
        pack = self.pack()
        if (pack / "layout.json").exists() and not (pack / "moepack.unfinished").exists():
            self.expect(tree_hash(pack) == expected, f"{name}: finished, other bytes: "
                        f"{sorted(set(left) ^ set(listing(pack)))}")
            return
        result = self.run(*self.listed())
        self.expect(result.returncode == 0, f"{name}: next run: {result.stderr.strip()}")
        self.expect(tree_hash(pack) == expected, f"{name}: other bytes")

    def interruptions(self):
        if self.shim is None:
            return
        self.quantize("q4", 4)
        self.drop("hot")
        kills, failing = self.moments(*self.listed())
        expected, left = tree_hash(self.pack()), listing(self.pack())
        for op, n in kills:
            self.drop("hot")
            self.run(*self.listed(), fault=f"kill-after:{op}:{n}")
            self.continues(f"killed after {op} {n}", expected, left)
        for error, op, n in failing:
            self.drop("hot")
            result = self.run(*self.listed(), fault=f"{error}:{op}:{n}")
            self.expect(result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1,
                        f"{error} at {op} {n}: exit {result.returncode}, {result.stderr}")
            self.continues(f"{error} at {op} {n}", expected, left)
        self.drop("hot")
        self.succeeds(*self.listed("--layers", "1-2"))
        self.drop("q4")  # the rest without the pack that records came from
        self.continues("--layers, then without the other pack", expected, left)
        self.drop("hot")
        self.succeeds(*self.listed("--layers", "1"))
        result = self.run(*self.listed("--hot-bits", 5))
        self.expect(result.returncode == 2 and "--restart" in result.stderr, "other widths")
        self.continues("after a refusal", expected, left)
        self.drop("hot")

    # ---- gain ----

    def poor_list(self):
        """With the least used experts hot a pack is no better than a uniform one, and that is said."""
        counts = [layer["counts"] for layer in json.loads(self.profile.read_text())["layers"]]
        ids = {str(l): sorted(range(EXPERTS), key=lambda e, u=uses: (u[e], e))[:6]
               for l, uses in enumerate(counts)}
        poor = self.write_hot(self.scratch / "poor.json", ids)
        flags = ("--hot-experts", poor, "--dry-run")
        report = self.report(*self.tier(*flags))
        self.expect(report["predicted_gain"] < 0.03 and report["worthwhile"] is False,
                    f"a poor list: {report}")
        loud = [a for a in self.tier(*flags) if a != "--quiet"]
        self.expect("below 3 %" in self.succeeds(*loud).stderr, "a poor list: no warning")
        self.expect(not self.pack().exists(), "--dry-run left a pack")
        # What is not measured is not promised.
        result = self.report(*self.tier("--hot-experts", poor, "--hot-bits", 8, "--dry-run"))
        self.expect("predicted_gain" not in result and
                    any("sensitivity" in note for note in result["notes"]), f"8 bits: {result}")

    # ---- refusals ----

    def refusals(self):
        allocation = ("--allocation", self.allocation)
        self.refuses("no source of widths", ["--allocation"], *self.tier())
        self.refuses("two sources of widths", ["--allocation"], *self.listed(*allocation))
        self.refuses("list and profile", ["--profile"], *self.listed("--profile", self.profile))
        for hot, cold in ((2, 2), (2, 4)):
            self.refuses(f"hot {hot}, cold {cold}", ["--hot-bits"],
                         *self.listed("--hot-bits", hot, "--cold-bits", cold))
        self.refuses("a width without format", ["--hot-bits"], *self.listed("--hot-bits", 7))
        self.refuses("gptq without calibration", ["--calibration"], *self.listed(calibrated=False))
        self.refuses("a layer too many", ["layer 4"], *self.listed("--layers", "4"))
        self.refuses("--reuse of nothing", ["nowhere"], *self.listed("--reuse", "nowhere"))
        self.refuses("a name with a slash", ["name"], *self.listed(name="a/b"))
        self.refuses("another group size", ["--group-size"],
                     *self.tier(*allocation, "--group-size", 32))
        self.refuses("no such list", ["nowhere"],
                     *self.tier("--hot-experts", self.scratch / "nowhere"))
        self.lists()
        self.allocations()
        self.profiles()

    def lists(self):
        path = self.scratch / "list.json"
        cases = [
            ("experts of another model", ["list.json", "num_experts"], self.hot_ids, LAYERS, 16),
            ("layers of another model", ["list.json", "num_layers"], self.hot_ids, 5, EXPERTS),
            ("an expert out of range", ["list.json", "12"], {"0": [3, 12]}, LAYERS, EXPERTS),
            ("a negative expert", ["list.json"], {"0": [-1]}, LAYERS, EXPERTS),
            ("a layer out of range", ["list.json", "4"], {"4": [1]}, LAYERS, EXPERTS),
            ("an expert twice", ["list.json", "hot_experts"], {"1": [3, 3]}, LAYERS, EXPERTS)]
        path.write_text("")
        for what, needles, ids, layers, experts in cases:
            self.write_hot(path, ids, layers, experts)
            self.refuses(what, needles, *self.tier("--hot-experts", path))
        path.write_text("{\"hot_experts\": ")
        self.refuses("half a list", ["list.json"], *self.tier("--hot-experts", path))

    def allocations(self):
        whole = json.loads(self.allocation.read_text())
        short = [{key: value[:-1] if isinstance(value, list) else value
                  for key, value in layer.items()} for layer in whole["layers"]]
        cases = [("of another model", ["another model"], {"source_fingerprint": "0123456789abcdef"}),
                 ("with fewer layers", ["another model"],
                  {"num_layers": 3, "layers": whole["layers"][:3]}),
                 ("with fewer experts", ["another model"],
                  {"num_experts": 11, "layers": short}),
                 ("of another version", ["alloc.json", "format_version"], {"format_version": 2}),
                 ("with 7 bits", ["alloc.json", "layers[0].up_proj"],
                  {"layers": [{**whole["layers"][0], "up_proj": [7] * EXPERTS}] +
                   whole["layers"][1:]}),
                 ("in groups of 48", ["groups"], {"group_size": 48})]
        for what, needles, values in cases:
            path = self.edited(self.allocation, "alloc.json", **values)
            self.refuses(f"an allocation {what}", needles, *self.tier("--allocation", path))
        self.refuses("measurements as allocation", ["sensitivity.json", "format"],
                     *self.tier("--allocation", self.table))

    def profiles(self):
        other = json.loads(self.profile.read_text())
        other["num_layers"] = 3
        other["layers"] = other["layers"][:3]
        path = self.scratch / "other.json"
        path.write_text(json.dumps(other))
        self.refuses("a profile of another model", ["other.json"], *self.tier("--profile", path))
        for share in ("1.5", "-0.5", "nan"):
            self.refuses(f"a coverage of {share}", ["overage"],
                         *self.tier("--profile", self.profile, "--coverage", share))
        self.succeeds(*self.listed(method="rtn", calibrated=False))
        before = tree_hash(self.pack())
        self.refuses("a name that is taken", ["already holds a pack"],
                     *self.listed("--hot-bits", 8, method="rtn", calibrated=False))
        self.expect(tree_hash(self.pack()) == before, "a name that is taken: changed")


if __name__ == "__main__":
    T = TierTester
    sys.exit(main_with(T, (T.allocated, T.listed_widths, T.profiled, T.other_widths, T.reused,
                           T.interruptions, T.poor_list, T.refusals)))

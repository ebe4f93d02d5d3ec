#!/usr/bin/env python3
"""bench/quality_table.py with a program in moepack's place that counts how it is called.

The program answers from the pack's name, so every number of the table is known beforehand; packs'
manifests are written here and their bits per weight counted by hand.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "bench" / "quality_table.py"

# Perplexity 10 for the base and 11 for others, divergence 0.25; answers the first prompt exactly,
# of the second only with the base pack. Every call is a line in calls.txt.
PROGRAM = r'''#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
args = sys.argv[1:]
with open(here / "calls.txt", "a") as log:
    log.write(" ".join(args) + "\n")
value = lambda flag: args[args.index(flag) + 1]
model = pathlib.Path(args[1])
if args[0] == "quantize":
    if "--fail" in args:
        sys.exit(2)
    pack = model / ("packed_experts_" + value("--name"))
    pack.mkdir()
    text = (here / "layout.json").read_text().replace("METHOD", value("--method"))
    (pack / "layout.json").write_text(text)
    print("done")
elif args[0] == "perplexity":
    base = value("--pack") == "packed_experts"
    found = {"ppl": 10.0 if base else 11.0, "ppl_error": 0.5, "tokens_scored": 99}
    if base:
        pathlib.Path(value("--kl-divergence-base")).write_text("base")
    else:
        assert pathlib.Path(value("--kl-divergence-base")).read_text() == "base"
        found.update(mean_kld=0.25, mean_kld_error=0.01, same_top=0.875)
    print(json.dumps(found))
else:
    good = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for number, line in enumerate(open(value("--prompts-file"))):
        text = good if number == 0 or value("--pack") == "packed_experts" else "<tool_call>{"
        print(json.dumps({"prompt": json.loads(line)["prompt"], "text": text}))
'''


def record(size, bits):
    formats = [{"format": f"q{b}", "group_size": 64, "scale_dtype": "BF16"} if b < 16 else
               {"format": "bf16"} for b in bits]
    return {"expert_size": size, "formats": dict(zip(("gate_proj", "up_proj", "down_proj"),
                                                     formats))}


def layout(records, layers, method):
    return {**records[0], "layouts": records[1:], "num_layers": len(layers), "num_experts": 4,
            "hidden_size": 64, "expert_width": 32, "layers": layers,
            "source": {"method": method}}


def write_model(folder):
    model = folder / "model"
    (model / "packed_experts").mkdir(parents=True)
    (model / "model_weights.json").write_text("{}")
    weights = 3 * 64 * 32
    base = layout([record(2 * weights, (16, 16, 16))], [{"size": 50_000_000}], "copy")
    (model / "packed_experts" / "layout.json").write_text(json.dumps(base))
    # Layer 0: four experts of 2000 bytes; layer 1: three of 3000 and one of 2000.
    mixed = layout([record(2000, (2, 2, 3)), record(3000, (4, 4, 4))],
                   [{"size": 8000}, {"size": 11_000, "layout": 1, "experts": {"2": {"layout": 0}}}],
                   "METHOD")
    (folder / "layout.json").write_text(json.dumps(mixed))
    (folder / "text.txt").write_text("some text")
    case = {"prompt": "p", "expected": {"name": "f", "arguments": {}}, "tools": []}
    (folder / "calls.jsonl").write_text((json.dumps(case) + "\n") * 2)
    program = folder / "moepack"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return model


class Checks:
    def __init__(self, folder):
        self.folder = folder
        self.model = write_model(folder)
        self.failures = []

    def expect(self, good, what):
        if not good:
            self.failures.append(what)

    def run(self, *flags):
        """-> (exit status, stdout, stderr, calls by command)"""
        log = self.folder / "calls.txt"
        log.write_text("")
        done = subprocess.run(
            [sys.executable, "-B", TABLE, self.model, "--moepack", self.folder / "moepack", "--text",
             self.folder / "text.txt", "--toolcalls", self.folder / "calls.jsonl", "--work",
             self.folder / "work", "--json", self.folder / "rows.json", *flags],
            capture_output=True, text=True, check=False)
        calls = [line.split()[0] for line in log.read_text().splitlines()]
        return (done.returncode, done.stdout, done.stderr,
                tuple(calls.count(c) for c in ("quantize", "perplexity", "run")))


def check_table(checks, recipe):
    status, out, err, calls = checks.run("--recipe", recipe, "--calibration", "CAL")
    checks.expect(status == 0, f"table failed: {err}")
    checks.expect(calls == (2, 3, 3), f"calls {calls}")
    quantized = (checks.folder / "model" / "packed_experts_a" / "layout.json").read_text()
    checks.expect('"rtn"' in quantized, "the recipe's arguments did not arrive")
    lines = out.splitlines()
    expected = [
        "| packed_experts | copy | 16, 16 | 16.00 | 50.0 | 10.000 | - | - | 2 of 2 | 2 |",
        # 5 records of 2000 and 3 of 3000 bytes over 8 experts of 6144 weights: 3.0924 bits
        "| a | rtn | 2-4, 3-4 g64 | 3.09 | 0.0 | 11.000 | 0.2500 ± 0.0100 | 87.5 | 1 of 2 | 1 |",
        "| b | gptq | 2-4, 3-4 g64 | 3.09 | 0.0 | 11.000 | 0.2500 ± 0.0100 | 87.5 | 1 of 2 | 1 |"]
    checks.expect(lines[2:] == expected, f"table:\n{out}")
    rows = json.loads((checks.folder / "rows.json").read_text())
    checks.expect([r["pack"] for r in rows] == ["packed_experts", "a", "b"], "rows of the JSON")
    checks.expect(abs(rows[1]["bpw"] - 8 * 19000 / (8 * 6144)) < 1e-9, f"bpw {rows[1]['bpw']}")
    checks.expect(rows[1]["bytes"] == 19_000 and rows[1]["quantize_seconds"] >= 0, "a's row")
    return out


def check_resume(checks, recipe, first):
    flags = ("--recipe", recipe, "--calibration", "CAL")
    status, out, _, calls = checks.run(*flags)
    checks.expect((status, out, calls) == (0, first, (0, 0, 0)), f"a second run: {calls}")
    # A pack made again is measured again, and nothing else; its base is still there.
    path = checks.model / "packed_experts_b" / "layout.json"
    path.write_text(path.read_text().replace('"gptq"', '"grid"'))
    status, out, _, calls = checks.run(*flags)
    checks.expect((status, calls) == (0, (0, 1, 1)) and "| b | grid |" in out, f"changed: {calls}")
    (checks.folder / "text.txt").write_text("another text")
    status, _, _, calls = checks.run(*flags)
    checks.expect((status, calls) == (0, (0, 3, 0)), f"another text: {calls}")
    (checks.folder / "work" / "base.kld").unlink()
    status, _, _, calls = checks.run(*flags, "--packs", "a")
    checks.expect((status, calls) == (0, (0, 1, 0)), f"without the base's file: {calls}")
    status, _, _, calls = checks.run(*flags, "--packs", "a", "--limit-toolcalls", "1")
    checks.expect((status, calls) == (0, (0, 0, 2)), f"fewer prompts: {calls}")
    status, _, _, calls = checks.run(*flags, "--packs", "a", "--", "--cpu", "avx2")
    checks.expect((status, calls) == (0, (0, 2, 2)), f"other arguments: {calls}")


def check_errors(checks, recipe):
    def refused(what, *flags):
        status, out, err, _ = checks.run(*flags)
        last = err.strip().splitlines()[-1] if err.strip() else ""
        checks.expect(status == 2 and not out and what in last, f"{what}: {status} {out} {err}")

    refused("which packs")
    refused("no such pack", "--packs", "nothing")
    refused("no such pack", "--recipe", recipe, "--packs", "nothing", "--calibration", "CAL")
    bad = checks.folder / "bad.txt"
    for text, what in (("", "names no pack"), ("a --bits 2\na --bits 3\n", "line 2"),
                       ("a 'x\n", "line 1"), ("../a --bits 2\n", "line 1")):
        bad.write_text(text)
        refused(what, "--recipe", bad)
    bad.write_text("c --method gptq --calibration {calibration}\nd --fail\n")
    refused("--calibration", "--recipe", bad, "--packs", "c")
    refused("exit status 2", "--recipe", bad, "--packs", "d")
    (checks.folder / "work" / "results.json").write_text("{")
    refused("results.json", "--packs", "a")


def main():
    with tempfile.TemporaryDirectory(prefix="moepack-table-") as scratch:
        checks = Checks(Path(scratch))
        recipe = checks.folder / "recipe.txt"
        recipe.write_text("# two packs\na --method rtn --bits 2  # plain\n\n"
                          "b --method gptq --bits 2 --calibration {calibration}\n")
        first = check_table(checks, recipe)
        check_resume(checks, recipe, first)
        check_errors(checks, recipe)
    for failure in checks.failures:
        print(f"quality_table_test: {failure}", file=sys.stderr)
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())

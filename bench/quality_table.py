#!/usr/bin/env python3
"""Makes expert packs of a model by a recipe, measures what each costs, and prints a Markdown table.

For every pack: bits, bits per expert weight and size (from its layout.json), perplexity and mean KL
divergence from the base pack on a text (`moepack perplexity`), and tool calls
(scripts/score_toolcalls.py). The base pack's row comes first.

A recipe has one pack a line: its name, then arguments of `moepack quantize`, or `tier` and arguments
of `moepack tier`; `#` begins a comment, {calibration} stands for --calibration and {work} for --work.
The pack NAME lies in MODEL/packed_experts_NAME; only packs
that are missing are made. Without a recipe the packs named by --packs are measured as they are.

Results are kept in WORK/results.json under the checksums of both layout.json and of the texts, so an
interrupted run goes on where it was, and only what changed is measured again; remove the file to
measure with another build of moepack. The log-probabilities of the base pack (WORK/base.kld, two
bytes a scored token and vocabulary entry: --chunks bounds them) are made once.

Arguments behind -- go to every `moepack perplexity` and `moepack run`, e.g. -- --cpu avx2
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

SCORER = Path(__file__).resolve().parent.parent / "scripts" / "score_toolcalls.py"
DEFAULT_PACK = "packed_experts"
HEADINGS = ["pack", "method", "bits (gate/up, down)", "bpw", "MB", "PPL", "mean KLD",
            "same top %", "tool calls exact", "valid JSON"]
# Bits of a weight in formats without groups.
PLAIN_BITS = {"f32": 32, "f16": 16, "bf16": 16}


class TableError(Exception):
    """Something that makes the table impossible; shown as one line."""


# ---- recipe ----

def parse_recipe(text, name):
    """-> {pack name: [arguments]}, in the order of the lines."""
    packs = {}
    for number, line in enumerate(text.split("\n"), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise TableError(f"{name} line {number}: {error}") from None
        if not words:
            continue
        if words[0] in packs or words[0].startswith("-") or "/" in words[0]:
            raise TableError(f"{name} line {number}: {words[0]!r} cannot name a pack here")
        packs[words[0]] = words[1:]
    if not packs:
        raise TableError(f"{name}: names no pack")
    return packs


def chosen_packs(arguments):
    """-> {pack name: arguments, or None for a pack that must be there}"""
    wanted = [name for name in (arguments.packs or "").split(",") if name]
    if arguments.recipe is None:
        if not wanted:
            raise TableError("say which packs: --recipe FILE, --packs NAME,…, or both")
        return {name: None for name in wanted}
    try:
        text = Path(arguments.recipe).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{arguments.recipe}: {error}") from None
    recipe = parse_recipe(text, arguments.recipe)
    if not wanted:
        return recipe
    return {name: recipe.get(name) for name in wanted}


def pack_directory(model, name):
    """`moepack` takes NAME for packed_experts_NAME, or a directory's whole name."""
    for directory in (model / f"{DEFAULT_PACK}_{name}", model / name):
        if name and (directory / "layout.json").is_file():
            return directory
    return model / (f"{DEFAULT_PACK}_{name}" if name else DEFAULT_PACK)


# ---- layout.json ----

def format_bits(fmt):
    name = fmt["format"]
    if name in PLAIN_BITS:
        return PLAIN_BITS[name], None
    if name.startswith("q") and name[1:].isdigit():
        return int(name[1:]), fmt["group_size"]
    return name, None


def span_text(values):
    """Widths as text: "2", or "2-4" where there are several; names of block formats as they are."""
    numbers = sorted(v for v in values if isinstance(v, int))
    words = sorted(v for v in values if not isinstance(v, int))
    if numbers:
        words.insert(0, str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return "+".join(words)


def describe_pack(layout):
    """What a layout.json says: bits as text, bits per expert weight, bytes, method."""
    layouts = [layout, *layout.get("layouts", [])]
    uses = [0] * len(layouts)
    for layer in layout["layers"]:
        usual = layer.get("layout", 0)
        others = {e: entry.get("layout", usual) for e, entry in layer.get("experts", {}).items()}
        uses[usual] += layout["num_experts"] - len(others)
        for index in others.values():
            uses[index] += 1
    bits = {"gate_proj": set(), "up_proj": set(), "down_proj": set()}
    groups = set()
    for record, count in zip(layouts, uses):
        for projection in bits if count else ():
            width, group = format_bits(record["formats"][projection])
            bits[projection].add(width)
            if group is not None:
                groups.add(group)
    text = f"{span_text(bits['gate_proj'] | bits['up_proj'])}, {span_text(bits['down_proj'])}"
    if groups:
        text += f" g{span_text(groups)}"
    weights = 3 * layout["hidden_size"] * layout["expert_width"] * sum(uses)
    record_bytes = sum(record["expert_size"] * count for record, count in zip(layouts, uses))
    method = layout.get("source", {}).get("method", "")
    return {"bits": text, "bpw": 8 * record_bytes / weights,
            "bytes": sum(layer["size"] for layer in layout["layers"]), "method": method}


# ---- files ----

def file_checksum(path):
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}") from None
    return digest.hexdigest()


def read_layout(directory):
    path = directory / "layout.json"
    try:
        layout = json.loads(path.read_text(encoding="utf-8"))
        return describe_pack(layout)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}; is the pack made?") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise TableError(f"{path}: not a layout.json of moepack ({error!r})") from None


class Results:
    """What was measured, by key, in a file that is always whole."""

    def __init__(self, path):
        self.path = path
        try:
            self.entries = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.entries = {}
        except (OSError, ValueError) as error:
            raise TableError(f"{path}: {error}; remove it to measure again") from None

    def get(self, key):
        return self.entries.get(key)

    def put(self, key, value):
        self.entries[key] = value
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.entries, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


# ---- measuring ----

def run(command, what, stdout):
    print(f"[{time.strftime('%H:%M:%S')}] {what}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run([str(word) for word in command], stdout=stdout, check=False)
    except OSError as error:
        raise TableError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise TableError(f"{what}: exit status {done.returncode}")
    return done.stdout


def run_json(command, what):
    """The one JSON object that a command prints; its messages pass to stderr."""
    try:
        return json.loads(run(command, what, subprocess.PIPE))
    except ValueError:
        raise TableError(f"{what}: printed no JSON") from None


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.model = Path(arguments.model)
        self.work = Path(arguments.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.results = Results(self.work / "results.json")
        self.base = pack_directory(self.model, arguments.base_pack)
        self.base_kld = self.work / "base.kld"
        # Everything that the numbers of every pack depend on.
        residents = file_checksum(self.model / "model_weights.json")
        self.text_key = "|".join([residents, file_checksum(arguments.text), str(arguments.ctx_size),
                                  str(arguments.chunks), *arguments.extra])
        self.calls_key = "|".join([residents, file_checksum(arguments.toolcalls),
                                   str(arguments.limit_toolcalls), *arguments.extra]
                                  ) if arguments.toolcalls else None
        self.base_key = file_checksum(self.base / "layout.json")

    def make(self, name, recipe):
        directory = pack_directory(self.model, name)
        if (directory / "layout.json").is_file():
            return
        if recipe is None:
            raise TableError(f"{directory}: there is no such pack, and the recipe does not name it")
        words = []
        for word in recipe:
            if "{calibration}" in word and not self.arguments.calibration:
                raise TableError(f"{name}: needs --calibration DIR")
            word = word.replace("{calibration}", self.arguments.calibration or "")
            words.append(word.replace("{work}", str(self.work)))
        verb = words.pop(0) if words[:1] == ["tier"] else "quantize"
        if self.arguments.source:
            words += ["--from", self.arguments.source]
        command = [self.arguments.moepack, verb, self.model, *words, "--name", name]
        start = time.monotonic()
        run(command, f"{name}: {verb} {' '.join(words)}", sys.stderr)
        seconds = time.monotonic() - start
        key = file_checksum(pack_directory(self.model, name) / "layout.json")
        self.results.put("seconds|" + key, seconds)

    def perplexity(self, directory, flags, what):
        found = run_json(
            [self.arguments.moepack, "perplexity", self.model, "--pack", directory.name, *flags,
             "--json", *self.arguments.extra], what)
        names = ("ppl", "ppl_error", "mean_kld", "mean_kld_error", "same_top", "tokens_scored")
        return {name: found[name] for name in names if name in found}

    def text_flags(self):
        flags = ["-f", self.arguments.text, "-c", self.arguments.ctx_size]
        return flags + (["--chunks", self.arguments.chunks] if self.arguments.chunks else [])

    def score_base(self):
        """The base pack's perplexity; leaves its log-probabilities for the others."""
        key = f"base|{self.base_key}|{self.text_key}"
        stamp = self.base_kld.with_suffix(".key")
        is_there = (self.base_kld.is_file() and stamp.is_file()
                    and stamp.read_text(encoding="utf-8") == key)
        if self.results.get(key) is None or not is_there:
            stamp.unlink(missing_ok=True)
            found = self.perplexity(
                self.base, [*self.text_flags(), "--kl-divergence-base", self.base_kld],
                f"{self.base.name}: perplexity, and the base of the others")
            self.results.put(key, found)
            stamp.write_text(key, encoding="utf-8")
        return self.results.get(key)

    def score_text(self, directory, layout_key):
        key = f"text|{layout_key}|{self.base_key}|{self.text_key}"
        if self.results.get(key) is None:
            self.score_base()
            self.results.put(key, self.perplexity(
                directory, ["--kl-divergence-base", self.base_kld, "--kl-divergence"],
                f"{directory.name}: perplexity and divergence"))
        return self.results.get(key)

    def score_calls(self, directory, layout_key):
        if self.calls_key is None:
            return None
        key = f"calls|{layout_key}|{self.calls_key}"
        if self.results.get(key) is None:
            limit = ["--limit", self.arguments.limit_toolcalls]
            self.results.put(key, run_json(
                [sys.executable, "-B", SCORER, self.model, self.arguments.toolcalls, "--moepack",
                 self.arguments.moepack, "--json",
                 *(limit if self.arguments.limit_toolcalls else []), "--", "--pack",
                 directory.name, *self.arguments.extra], f"{directory.name}: tool calls"))
        return self.results.get(key)

    def row(self, name, directory):
        """One line of the table as numbers."""
        layout_key = file_checksum(directory / "layout.json")
        row = {"pack": name, **read_layout(directory)}
        is_base = directory == self.base
        row |= self.score_base() if is_base else self.score_text(directory, layout_key)
        calls = self.score_calls(directory, layout_key)
        if calls is not None:
            row |= {"toolcalls": calls["prompts"], "exact_calls": calls["exact_calls"],
                    "valid_json": calls["valid_json"]}
        seconds = self.results.get("seconds|" + layout_key)
        if seconds is not None:
            row["quantize_seconds"] = seconds
        return row


# ---- the table ----

def markdown_row(row):
    kld = "-"
    if "mean_kld" in row:
        kld = f"{row['mean_kld']:.4f} ± {row['mean_kld_error']:.4f}"
    same_top = f"{100 * row['same_top']:.1f}" if "same_top" in row else "-"
    calls, valid = "-", "-"
    if "toolcalls" in row:
        calls = f"{row['exact_calls']} of {row['toolcalls']}"
        valid = str(row["valid_json"])
    return [row["pack"], row["method"], row["bits"], f"{row['bpw']:.2f}",
            f"{row['bytes'] / 1e6:.1f}", f"{row['ppl']:.3f}", kld, same_top, calls, valid]


def markdown(rows):
    lines = [HEADINGS, ["---"] + ["---", "---"] + ["---:"] * (len(HEADINGS) - 3),
             *map(markdown_row, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description="Quality of expert packs as a table (see the head of this file).",
        epilog="Arguments behind -- go to `moepack perplexity` and `moepack run`.")
    parser.add_argument("model", help="model directory with the base pack")
    parser.add_argument("--moepack", default="moepack", help="the program (default: from PATH)")
    parser.add_argument("--base-pack", default="", metavar="NAME",
                        help="the unquantized pack (default: packed_experts)")
    parser.add_argument("--text", required=True, help="text to score")
    parser.add_argument("-c", "--ctx-size", type=int, default=512, help="tokens of a window (512)")
    parser.add_argument("--chunks", type=int, default=0, help="only the first N windows")
    parser.add_argument("--toolcalls", help="JSON lines with prompt and expected")
    parser.add_argument("--limit-toolcalls", type=int, default=0, help="only the first N prompts")
    parser.add_argument("--recipe", help="packs to make, e.g. bench/quality_recipe.txt")
    parser.add_argument("--packs", help="only these packs, in this order: NAME,…")
    parser.add_argument("--calibration", help="what {calibration} stands for in the recipe")
    parser.add_argument("--from", dest="source", help="source of the weights, for quantize")
    parser.add_argument("--work", required=True, help="directory for results and base.kld")
    parser.add_argument("--json", help="write the rows here too")
    own, extra = argv, []
    if "--" in argv:
        own, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    arguments = parser.parse_args(own)
    arguments.extra = extra
    return arguments


def main(argv):
    arguments = parse_arguments(argv)
    try:
        packs = chosen_packs(arguments)
        bench = Bench(arguments)
        rows = [bench.row(bench.base.name, bench.base)]
        for name, recipe in packs.items():
            bench.make(name, recipe)
            directory = pack_directory(bench.model, name)
            if directory != bench.base:
                rows.append(bench.row(name, directory))
    except TableError as error:
        print(f"quality_table: {error}", file=sys.stderr)
        return 2
    print(markdown(rows))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

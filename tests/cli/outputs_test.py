#!/usr/bin/env python3
"""What a command is told on its line, and where its results go.

Result files appear whole and replace regular files alone; a failed write to stdout is an error in
every command; numbers out of range, unknown commands and things that are no model directory are
told with what to do. Nodes are made for the purpose: none of the system's is ever a target.
"""
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, listing, options

class Checks(CliRunner):
    TIMEOUT = 120

    def __init__(self, args, scratch):
        super().__init__(args.program, scratch, args.shim)
        self.sanitized = args.sanitized
        self.model = scratch / "model"
        self.ids = scratch / "ids.json"
        self.ids.write_text(json.dumps([5, 6, 7]))
        self.text = scratch / "text.txt"
        self.text.write_text("one two three four five six seven eight nine ten " * 4)
        self.source = args.checkpoint
        self.succeeds("convert", args.checkpoint, "-o", self.model, "--quiet")

    def logits(self, out, *flags):
        return "logits", self.model, "--token-ids", self.ids, "-o", out, "-t", 1, *flags

    def writers(self, out):
        """Every command that writes one file, by a run of it."""
        return {
            "logits": self.logits(out),
            "perplexity": ("perplexity", self.model, "-f", self.text, "-c", 8, "--chunks", 1,
                           "--kl-divergence-base", out),
            "index": ("index", self.source, "-o", out),
            "extract": ("extract", self.model, "model.norm.weight", "-o", out),
            "profile": ("profile", self.model, "-f", self.text, "-c", 8, "-o", out),
            "profile --hot-experts": ("profile", self.model, "-f", self.text, "-c", 8, "--top", 2,
                                      "--hot-experts", out),
            "sensitivity": ("sensitivity", self.model, "--calibration", self.scratch / "none",
                            "--target-bpw", 3, "-o", out),
            "sensitivity --measurements": ("sensitivity", self.model, "--calibration",
                                           self.scratch / "none", "--measurements", out),
            "export --gguf": ("export", "--gguf", self.model, "-o", out),
            "run --prompt-cache": ("run", self.model, "-p", "a b c", "-n", 1, "--prompt-cache", out),
        }

    def shell(self, line, *args):
        """A run below `sh`, where "$@" is the command."""
        return subprocess.run(["sh", "-c", line, "sh", str(self.program), *map(str, args)],
                              capture_output=True, text=True, errors="replace", check=False,
                              timeout=self.TIMEOUT)


# ---- files ----

def special_nodes(checks, place):
    """Things that no file may replace: name -> path, whose kind stays."""
    nodes = {"pipe": place / "pipe", "directory": place / "directory"}
    os.mkfifo(nodes["pipe"])
    nodes["directory"].mkdir()
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(place)  # the path of a socket is short
    try:
        listener.bind("socket")
        nodes["socket"] = place / "socket"
    finally:
        os.chdir(here)
        listener.close()
    try:
        os.mknod(place / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        nodes["device"] = place / "device"
    except OSError:
        print("SKIPPED: devices, because none may be made here")
    (place / "link").symlink_to("pipe")
    nodes["link"] = place / "link"
    return nodes


def check_special_targets(checks):
    place = checks.scratch / "nodes"
    place.mkdir()
    nodes = special_nodes(checks, place)
    before = {name: path.lstat().st_mode for name, path in nodes.items()}
    for kind, path in nodes.items():
        for command, args in checks.writers(path).items():
            needle = "exists already" if command == "export --gguf" else "is not a regular file"
            checks.refuses(f"{command} to a {kind}", [str(path), needle], *args)
    checks.expect(before == {name: path.lstat().st_mode for name, path in nodes.items()},
                  "a node became something else")
    for command, args in checks.writers(place / "absent" / "file").items():
        checks.refuses(f"{command} into no directory", ["absent"], *args)


def check_links_and_strangers(checks):
    place = checks.scratch / "links"
    place.mkdir()
    (place / "far").mkdir()
    plain = place / "plain.f32"
    checks.succeeds(*checks.logits(plain))
    wanted = plain.read_bytes()
    for name, target in (("to-file", "far/file"), ("dangling", "far/new")):
        if name == "to-file":
            (place / target).write_bytes(b"old")
        (place / name).symlink_to(target)
        checks.succeeds(*checks.logits(place / name))
        checks.expect((place / name).is_symlink() and (place / target).read_bytes() == wanted and
                      not (place / target).is_symlink(), f"{name}: the link was not followed")
    victim = place / "victim"
    victim.write_bytes(b"mine")
    (place / "out.f32.tmp").symlink_to(victim)
    checks.succeeds(*checks.logits(place / "out.f32"))
    checks.expect(victim.read_bytes() == b"mine" and not (place / "out.f32").is_symlink() and
                  (place / "out.f32").read_bytes() == wanted, "OUT.tmp of the user was used")
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    # A circle cannot even be looked at.
    checks.refuses("links in a circle", ["circle"], *checks.logits(place / "a"))


def check_two_at_once(checks):
    """Two runs of one target: both succeed, and what stays is the whole file of one of them."""
    many = checks.scratch / "many.json"
    many.write_text(json.dumps([i % 1000 for i in range(40)]))
    wanted = []
    for ids in (checks.ids, many):
        alone = checks.scratch / "alone.f32"
        checks.succeeds("logits", checks.model, "--token-ids", ids, "-o", alone, "-t", 1)
        wanted.append(alone.read_bytes())
        alone.unlink()
    out = checks.scratch / "both.f32"
    before = listing(checks.scratch)
    for _ in range(3):
        runs = [subprocess.Popen([checks.program, "logits", checks.model, "--token-ids", ids, "-o",
                                  out, "-t", "1"], stderr=subprocess.PIPE)
                for ids in (many, checks.ids)]
        errors = [run.communicate(timeout=checks.TIMEOUT)[1] for run in runs]
        checks.expect([run.returncode for run in runs] == [0, 0], f"two at once: {errors}")
        checks.expect(out.read_bytes() in wanted, f"two at once: {out.stat().st_size} bytes")
        out.unlink()
    checks.expect(listing(checks.scratch) == before, "two at once: something was left")


def check_faults(checks):
    """Writes, syncs and the rename that fail: the old file stays, and nothing else."""
    if checks.shim is None:
        return
    place = checks.scratch / "faults"
    place.mkdir()
    out = place / "out"
    for command in ("logits", "perplexity", "index", "extract", "profile"):
        args = checks.writers(out)[command]
        counts = checks.scratch / "counts"
        checks.run(*args, fault=f"count:{counts}")
        calls = checks.counted(counts)
        new = out.read_bytes()
        for error, operation, call in (("ENOSPC", "write", 1), ("ENOSPC", "write", calls["write"]),
                                       ("EIO", "sync", 1), ("EIO", "rename", 1),
                                       ("ENOSPC", "rename", 1)):
            out.write_bytes(b"old")
            result = checks.run(*args, fault=f"{error}:{operation}:{call}")
            checks.expect(result.returncode == 2 and "out" in result.stderr and
                          (error == "EIO" or "free some space" in result.stderr),
                          f"{command}, {error} at {operation} {call}: {result.returncode}, "
                          f"{result.stderr}")
            checks.expect(out.read_bytes() == b"old" and listing(place) == ["out"],
                          f"{command}, {error} at {operation} {call}: {listing(place)}")
        # Killed before the rename: the next run removes what is left.
        checks.run(*args, fault="kill-after:sync:1")
        checks.expect(len(listing(place)) == 2 and out.read_bytes() == b"old",
                      f"{command} killed: {listing(place)}")
        checks.succeeds(*args)
        checks.expect(listing(place) == ["out"] and out.read_bytes() == new,
                      f"{command} after a killed run: {listing(place)}")


def check_stdout_targets(checks):
    wanted = checks.scratch / "wanted"
    for command in ("logits", "index", "extract", "profile"):
        checks.succeeds(*checks.writers(wanted)[command])
        result = checks.run(*checks.writers("-")[command], binary=True)
        checks.expect(result.returncode == 0 and result.stdout == wanted.read_bytes(),
                      f"{command} -o -: other bytes on stdout")
        wanted.unlink()
    for command in ("perplexity", "sensitivity --measurements", "export --gguf"):
        checks.refuses(f"{command} to stdout", ["stdout", "name a file"],
                       *checks.writers("-")[command])
    checks.refuses("logits and --json on stdout", ["--json"], *checks.logits("-", "--json"))
    checks.refuses("widths and --json on stdout", ["--json"],
                   *checks.writers("-")["sensitivity"], "--json")
    checks.expect(not Path("-").exists(), "a file named -")


# ---- stdout ----

def check_lost_stdout(checks):
    commands = {
        "--help": ("--help",), "--version": ("--version",), "run --help": ("run", "--help"),
        "run": ("run", checks.model, "-p", "x", "-n", 2),
        "run --json": ("run", checks.model, "-p", "x", "-n", 2, "--json"),
        "inspect": ("inspect", checks.model), "inspect --json": ("inspect", checks.model, "--json"),
        "inspect --tensors": ("inspect", checks.source, "--tensors"),
        "perplexity": ("perplexity", checks.model, "-f", checks.text, "-c", 8, "--chunks", 1),
        "verify --json": ("verify", checks.model, "--json"),
        "index": ("index", checks.source, "-o", "-"),
        "logits": checks.logits("-"),
        "convert --json": ("convert", checks.source, "-o", checks.scratch / "dry", "--dry-run",
                           "--json", "--quiet"),
    }
    ways = {"closed": '"$@" >&-'}
    if Path("/dev/full").exists():
        ways["full"] = '"$@" >/dev/full'
    else:
        print("SKIPPED: a full stdout, because there is no /dev/full")
    for way, line in ways.items():
        for name, args in commands.items():
            result = checks.shell(line, *args)
            lines = [x for x in result.stderr.splitlines() if x.startswith("moepack: ")]
            checks.expect(result.returncode == 2 and len(lines) == 1 and
                          "cannot write to stdout" in lines[0],
                          f"{name}, stdout {way}: exit {result.returncode}, {result.stderr[-300:]}")
    result = checks.shell('"$@" >&-', "verify", checks.model, "--quiet")
    checks.expect(result.returncode == 0, f"nothing to print: {result.stderr}")


def check_closed_descriptors(checks):
    """A file that is opened later must not become stdin, stdout or stderr."""
    wanted, out = checks.scratch / "wanted.f32", checks.scratch / "out.f32"
    checks.succeeds(*checks.logits(wanted))
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        result = checks.shell(f'"$@" {closed}', *checks.logits(out))
        checks.expect(result.returncode == 0 and out.read_bytes() == wanted.read_bytes(),
                      f"{closed}: exit {result.returncode}, {result.stderr}")
        out.unlink(missing_ok=True)
    before = wanted.read_bytes()
    result = checks.shell('"$@" >&- 2>&-', "run", checks.model, "-p", "x", "-n", 2)
    checks.expect(result.returncode == 2, f"run without stdout: exit {result.returncode}")
    checks.succeeds("verify", checks.model, "--quiet")
    checks.expect(wanted.read_bytes() == before, "a file was written over")


# ---- the command line ----

def check_numbers(checks):
    out = checks.scratch / "never"
    run = ("run", checks.model, "-p", "x")
    cases = (
        ("--ctx-size", run, "-c", ("-5", "1000000000", "1e9", "x", "", "0x10", "010", "16777217")),
        ("--cache-mb", run, "--cache-mb", ("-1", "17592186044416", "18446744073709551616", "1.5")),
        ("--seed", run, "-s", ("-1", "18446744073709551616")),
        ("--predict", run, "-n", ("-2", "1073741825")),
        ("--temp", run, "--temp", ("-1", "nan", "inf", "warm")),
        ("--top-k", run, "--top-k", ("-3", "2147483648")),
        ("--top-p", run, "--top-p", ("2", "-0.1", "nan")),
        ("--min-p", run, "--min-p", ("1.5", "nan")),
        ("--threads", run, "-t", ("-1", "1025")),
        ("--chunk", run, "--chunk", ("-1", "65537")),
        ("--chunks", ("perplexity", checks.model, "-f", checks.text), "--chunks", ("-1", "many")),
        ("--max-tokens", ("profile", checks.model, "-f", checks.text, "-o", out), "--max-tokens",
         ("-1",)),
        ("--coverage", ("profile", checks.model, "--hot-experts", out), "--coverage",
         ("nan", "0", "2")),
        ("--probe-tokens", ("calibrate", checks.model, "-f", checks.text, "-o", out),
         "--probe-tokens", ("-1",)),
        ("--rows", checks.writers(out)["sensitivity"], "--rows", ("-1", "4294967296")),
        ("--page-size", ("convert", checks.source, "-o", out), "--page-size", ("-1",)),
        ("--split", ("export", checks.model, "-o", out), "--split", ("-1", "nan")),
        ("--worst", ("inspect", checks.model), "--worst", ("-1", "1099511627777", "many")),
    )
    for name, args, flag, values in cases:
        for value in values:
            checks.refuses(f"{flag} {value}", [name, " from ", " to "], *args, flag, value)


def check_pack_names(checks):
    """The commands that make packs take the same names."""
    pack = checks.model / "packed_experts"
    bad = ("..", ".", "a.b", "a b", "a:b", "a\\b", "é", "packed_experts_", "packed_experts_..", "")
    for name in bad:
        checks.refuses(f"quantize --name {name}",
                       ["cannot be the name of a pack", "letters, digits"] if name else ["--name is empty"],
                       "quantize", checks.model, "--name", name, "--bits", 4, "--method", "rtn")
        directory = name if name.startswith("packed_experts") else f"packed_experts_{name}"
        checks.refuses(f"convert PACK -o {directory}", ["cannot be the name of a pack", "letters"],
                       "convert", pack, "-o", checks.model / directory, "--row-order", "panels16")
    for name in ("packed_experts", "packed_experts_a-B_9"):
        result = checks.run("quantize", checks.model, "--name", name, "--bits", 4, "--method", "rtn",
                            "--dry-run", "--json")
        if name == "packed_experts":
            checks.is_error(f"--name {name}", result, ["already holds a pack"])
        else:
            checks.expect(json.loads(result.stdout)["pack"] == name, f"--name {name}: {result}")
    checks.refuses("two widths of a layer", ["--layer-bits 0=4,0=5", "layer 0"], "quantize",
                   checks.model, "--name", "x", "--bits", 4, "--method", "rtn", "--layer-bits",
                   "0=4,0=5")


def check_command_names(checks):
    for word, needle in (("convrt", "did you mean convert?"), ("Run", "did you mean run?"),
                         ("extrakt", "did you mean extract?"), ("tokenize", "commands: convert"),
                         ("speak", "commands: convert"), ("x" * 100000, "commands: convert"),
                         ("", "no command")):
        result = checks.run(word, "x")
        checks.is_error(f"command {word[:20]}", result, [needle, "perplexity", "--help"])
        checks.expect(len(result.stderr) < 1000, f"command {word[:20]}: a long message")
    checks.expect("did you mean" not in checks.run("zzzzzz").stderr, "nothing is near zzzzzz")
    checks.is_error("no command", checks.run(), ["no command", "convert"])


def check_model_paths(checks):
    gguf = checks.scratch / "some.gguf"
    gguf.write_bytes(b"GGUF" + bytes(100))
    plain = checks.scratch / "some.txt"
    plain.write_text("text")
    lost = checks.scratch / "lost"
    lost.symlink_to("gone/model")
    ring = checks.scratch / "ring"
    ring.symlink_to("ring")
    for path, needles in ((gguf, ["GGUF", f"moepack convert {gguf} -o some"]),
                          (lost, [str(lost), "is a link to gone/model, which is missing"]),
                          (f"{lost}/", [str(lost), "is a link to gone/model, which is missing"]),
                          (ring, [str(ring), "leads back to it"]),
                          (plain, ["some.txt", "no model directory"]),
                          ("org/name-7B", ["org/name-7B", "no such directory", "download",
                                           "moepack convert name-7B"]),
                          (checks.scratch / "nowhere", ["nowhere", "no such directory"])):
        for args in (("run", path, "-p", "x"), ("perplexity", path, "-f", checks.text),
                     ("logits", path, "--token-ids", checks.ids, "-o", checks.scratch / "never"),
                     ("calibrate", path, "-f", checks.text, "-o", checks.scratch / "never"),
                     ("profile", path, "-f", checks.text, "-o", checks.scratch / "never"),
                     ("quantize", path, "--name", "x", "--bits", 4),
                     ("sensitivity", path, "--calibration", checks.scratch / "none"),
                     ("tier", path, "--profile", checks.text),
                     ("export", path, "-o", checks.scratch / "never")):
            checks.refuses(f"{args[0]} {path}", needles, *args)


def check_prompts(checks):
    prompts = checks.scratch / "prompts.jsonl"
    line = '{"prompt": "one"}'

    def answers(text):
        prompts.write_bytes(text.encode())
        return checks.run("run", checks.model, "--prompts-file", prompts, "-n", 1, "-c", 64)
    for text in (f"{line}\n\n{line}\n", f"{line}\r\n\r\n \t\r\n{line}\r\n"):
        result = answers(text)
        checks.expect(result.returncode == 0 and result.stdout.count("\n") == 2,
                      f"blank lines: {result.stderr}")
    for what, bad, needle in (("empty", '{"prompt": ""}', "is empty"),
                              ("too long", json.dumps({"prompt": "word " * 300}), "context"),
                              ("no prompt", "{}", "prompt"), ("no JSON", "{", "")):
        result = answers(f"{line}\n\n{bad}\n{line}\n")
        checks.expect(result.returncode == 2 and "prompts.jsonl line 3" in result.stderr and
                      needle in result.stderr and result.stdout.count("\n") == 1,
                      f"{what}: exit {result.returncode}, {result.stderr}, {result.stdout[:200]}")


def check_predict(checks):
    def run(*flags):
        return json.loads(checks.succeeds("run", checks.model, "-p", "one two", "--json",
                                          *flags).stdout)
    answer = run("-n", 0)
    checks.expect(answer["tokens"] == [] and answer["stop_reason"] == "length", f"-n 0: {answer}")
    answer = run("-n", -1, "-c", 24, "--ignore-eos")
    checks.expect(answer["stop_reason"] == "context" and
                  len(answer["tokens"]) + answer["prompt_tokens"] == 24, f"-n -1: {answer}")
    checks.refuses("a prompt as long as the context", ["no room for an answer", "-c"], "run", checks.model,
                   "-p", "one two", "-n", 1, "-c", answer["prompt_tokens"])


def check_small_address_space(checks):
    """OpenBLAS starts no thread while it is loaded, and commands without it need none of it."""
    if checks.sanitized:
        print("SKIPPED: limits of memory, which the sanitizers' own exceed")
        return
    for name, args in {"--version": ("--version",), "inspect": ("inspect", checks.model),
                       "verify": ("verify", checks.model, "-t", 1, "--quiet")}.items():
        try:
            result = checks.shell('ulimit -v 160000 && exec "$@"', *args)
            checks.expect(result.returncode == 0, f"ulimit -v 160000, {name}: {result.stderr}")
        except subprocess.TimeoutExpired:
            checks.expect(False, f"ulimit -v 160000, {name}: hangs")
    try:
        result = checks.shell('ulimit -v 160000 && exec "$@"', "quantize", checks.model, "--name",
                              "small", "--bits", 4, "--method", "grid", "-t", 1)
        checks.is_error("ulimit -v 160000, quantize", result, ["out of memory", "ulimit -v"])
    except subprocess.TimeoutExpired:
        checks.expect(False, "ulimit -v 160000, quantize: hangs")
    shutil.rmtree(checks.model / "packed_experts_small", ignore_errors=True)


def main():
    parser = options(__doc__, shim=True)
    parser.add_argument("--sanitized", action="store_true", help="no limits of memory")
    args = parser.parse_args()
    args.program, args.checkpoint = args.program.resolve(), args.checkpoint.resolve()
    args.shim = args.shim and args.shim.resolve()
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="moepack-outputs-") as scratch:
        os.chdir(scratch)  # a file named - would be here
        checks = Checks(args, Path(scratch))
        check_special_targets(checks)
        check_links_and_strangers(checks)
        check_two_at_once(checks)
        check_faults(checks)
        check_stdout_targets(checks)
        check_lost_stdout(checks)
        check_closed_descriptors(checks)
        check_numbers(checks)
        check_pack_names(checks)
        check_command_names(checks)
        check_model_paths(checks)
        check_prompts(checks)
        check_predict(checks)
        check_small_address_space(checks)
        os.chdir(here)
        return conclude(checks.failures, f"{checks.checks} checks of {checks.runs} runs, ")


if __name__ == "__main__":
    sys.exit(main())

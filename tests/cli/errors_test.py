#!/usr/bin/env python3
"""Damaged input at the command line: exit code 2, one line that names what is wrong, nothing left.

The checkpoint in the repository is damaged field by field, converted and run; every case states
what the message must name.
"""
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, options

SHARD = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_header(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_header(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Cases(CliRunner):
    TIMEOUT = 120

    def __init__(self, program, checkpoint, scratch):
        super().__init__(program, scratch)
        self.checkpoint = checkpoint
        self.count = 0

    def check(self, name, result, names, left_over=None):
        """Runs one case, which must be an error that leaves nothing behind."""
        self.count += 1
        self.is_error(name, result, names)
        self.expect(left_over is None or not left_over.exists(), f"{name}: left {left_over} behind")

    def convert_damaged(self, name, damage, names, *flags):
        source = self.scratch / "source"
        output = self.scratch / "output"
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(self.checkpoint, source, ignore=shutil.ignore_patterns("golden"))
        damage(source)
        self.check(name, self.run("convert", source, "-o", output, *flags), names, output)

    def run_damaged(self, name, model, damage, names, *flags):
        copy = self.scratch / "damaged-model"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model, copy)
        damage(copy)
        ids = self.scratch / "ids.json"
        ids.write_text("[" + ",".join(str(i * 7 % 4000) for i in range(200)) + "]")
        out = self.scratch / "logits.f32"
        out.unlink(missing_ok=True)
        self.check(name, self.run("logits", copy, "--token-ids", ids, "-o", out, *flags), names, out)


def edit_header(change):
    def damage(source):
        header, body = read_header(source / SHARD)
        changed = change(header, body)
        if changed is not None:
            header, body = changed
        write_header(source / SHARD, header, body)
    return damage


def edit_json(name, change):
    def damage(source):
        document = json.loads((source / name).read_text())
        change(document)
        (source / name).write_text(json.dumps(document))
    return damage


def edit_bytes(name, change):
    def damage(source):
        data = bytearray((source / name).read_bytes())
        (source / name).write_bytes(bytes(change(data)))
    return damage


def safetensors_cases(cases):
    gate = "language_model.model.layers.1.mlp.switch_mlp.gate_proj.weight"
    whole = (cases.checkpoint / SHARD).stat().st_size
    (header_size,) = struct.unpack_from("<Q", (cases.checkpoint / SHARD).read_bytes())
    for cut in [0, 1, 7, 8, 9, 100, 8 + header_size // 2, 8 + header_size - 1, 8 + header_size,
                8 + header_size + 1, whole // 2, whole - 1]:
        cases.convert_damaged(f"shard cut at {cut}", edit_bytes(SHARD, lambda d, n=cut: d[:n]),
                              [SHARD])
    cases.convert_damaged("one byte more", edit_bytes(SHARD, lambda d: d + b"\0"), [SHARD])
    cases.convert_damaged("huge header length",
                          edit_bytes(SHARD, lambda d: b"\xff" * 8 + d[8:]), [SHARD])
    cases.convert_damaged("shard missing", lambda s: (s / SHARD).unlink(), [SHARD])

    def drop(header, body):
        del header[gate]
    cases.convert_damaged("hole where a tensor was", edit_header(drop), [SHARD])

    def rename(header, body):
        header["language_model.model.layers.1.mlp.switch_mlp.gate_projx.weight"] = header.pop(gate)
    cases.convert_damaged("tensor under another name", edit_header(rename), [])

    def absent(source):
        header, body = read_header(source / SHARD)
        begin, end = header[gate]["data_offsets"]
        del header[gate]
        for entry in header.values():
            if "data_offsets" in entry and entry["data_offsets"][0] >= end:
                entry["data_offsets"] = [x - (end - begin) for x in entry["data_offsets"]]
        write_header(source / SHARD, header, body[:begin] + body[end:])
        index = json.loads((source / INDEX).read_text())
        del index["weight_map"][gate]
        (source / INDEX).write_text(json.dumps(index))
    cases.convert_damaged("tensor absent everywhere", absent, ["layers.1", "gate_proj"])

    def overlap(header, body):
        header[gate]["data_offsets"] = [x - 1 for x in header[gate]["data_offsets"]]
    cases.convert_damaged("overlapping tensors", edit_header(overlap), [SHARD, "tensor"])

    def overflow(header, body):
        header[gate]["shape"] = [1 << 63, 1 << 63, 0]
    cases.convert_damaged("shape overflow", edit_header(overflow), [SHARD, gate])

    norm = "language_model.model.layers.1.input_layernorm.weight"

    def dimensions(header, body):
        header[norm]["shape"] += [1] * 100000
    cases.convert_damaged("100000 dimensions", edit_header(dimensions), ["input_layernorm"])

    def past_end(header, body):
        header[gate]["data_offsets"] = [1 << 62, (1 << 62) + 10]
    cases.convert_damaged("offsets past the end", edit_header(past_end), [SHARD])

    def negative(header, body):
        header[gate]["data_offsets"][0] = -1
    cases.convert_damaged("negative offset", edit_header(negative), [SHARD])

    def wrong_shape(header, body):
        e, out, cols = header[gate]["shape"]
        header[gate]["shape"] = [e, out // 2, cols * 2]
    cases.convert_damaged("transposed sizes", edit_header(wrong_shape), ["gate_proj"])

    def unknown_dtype(header, body):
        header[gate]["dtype"] = "F7"
    cases.convert_damaged("unknown dtype", edit_header(unknown_dtype), [SHARD, gate])

    def duplicate(header, body):
        text = json.dumps(header).encode()
        entry = json.dumps({gate: header[gate]}).encode()[1:-1]
        return text[:-1] + b", " + entry + b"}", body
    cases.convert_damaged("name twice", edit_header(duplicate), [SHARD, "twice"])


def index_and_config_cases(cases):
    def escape(index):
        name = next(iter(index["weight_map"]))
        index["weight_map"][name] = "../model.safetensors"
    cases.convert_damaged("path in the index", edit_json(INDEX, escape), [INDEX])

    def unmapped(index):
        del index["weight_map"]["language_model.lm_head.weight"]
    cases.convert_damaged("tensor not in the index", edit_json(INDEX, unmapped), ["lm_head"])

    def phantom(index):
        index["weight_map"]["language_model.model.ghost"] = SHARD
    cases.convert_damaged("tensor only in the index", edit_json(INDEX, phantom), ["ghost"])
    cases.convert_damaged("index is no JSON", edit_bytes(INDEX, lambda d: d[:-5]), [INDEX])
    cases.convert_damaged("no config.json", lambda s: (s / "config.json").unlink(), ["config.json"])
    cases.convert_damaged("config.json cut", edit_bytes("config.json", lambda d: d[:300]),
                          ["config.json"])

    changes = {
        "hidden_size": 320, "num_hidden_layers": 5, "num_experts": 13, "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 512, "vocab_size": 4097, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 64, "linear_num_key_heads": 4,
        "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 3,
    }
    for key, value in changes.items():
        cases.convert_damaged(f"config contradicts the tensors: {key}",
                              edit_json("config.json",
                                        lambda c, k=key, v=value: c["text_config"].update({k: v})),
                              [])
    for key, value in {"hidden_size": 0, "num_experts": -1, "num_experts_per_tok": 13,
                       "rms_norm_eps": "x", "layer_types": ["linear_attention"],
                       "hidden_act": "gelu", "num_hidden_layers": 1 << 40,
                       "partial_rotary_factor": 7.0}.items():
        cases.convert_damaged(f"impossible config: {key}",
                              edit_json("config.json",
                                        lambda c, k=key, v=value: c["text_config"].update(
                                            {k: v} | ({"rope_parameters": None}
                                                      if k == "partial_rotary_factor" else {}))),
                              ["config.json"])

    def other_bits(config):
        for block in ("quantization", "quantization_config"):
            config[block]["bits"] = 8
    cases.convert_damaged("quantization contradicts the tensors",
                          edit_json("config.json", other_bits), [])
    cases.convert_damaged("unknown model type",
                          edit_json("config.json", lambda c: (
                              c.update(model_type="gpt9"),
                              c["text_config"].update(model_type="gpt9_text"))),
                          ["config.json", "gpt9"])


def usage_cases(cases):
    output = cases.scratch / "output"
    shutil.rmtree(output, ignore_errors=True)
    cases.check("no such source", cases.run("convert", cases.scratch / "nowhere", "-o", output),
                ["nowhere"], output)
    cases.check("unknown format",
                cases.run("convert", cases.checkpoint, "-o", output, "--expert-format", "q7"),
                ["q7"], output)
    cases.check("group size that does not fit",
                cases.run("convert", cases.checkpoint, "-o", output, "--expert-format", "q4",
                          "--group-size", "48"), ["48"], output)
    cases.check("no subcommand", cases.run(), [])
    cases.check("unknown flag", cases.run("run", "x", "-p", "x", "--wings"), ["--wings"])
    mine = cases.scratch / "mine"
    mine.mkdir()
    (mine / "precious.txt").write_text("keep")
    cases.check("output directory in use", cases.run("convert", cases.checkpoint, "-o", mine),
                ["mine"])
    if [p.name for p in mine.iterdir()] != ["precious.txt"]:
        cases.failures.append("output directory in use: its files were touched")


def numbers_in(document, path=()):
    """Every number of a JSON document, with its path; `report` is for people and left out."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if key == "report":
            continue
        if isinstance(value, (dict, list)):
            yield from numbers_in(value, (*path, key))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, key), value


def set_at(document, path, value):
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def model_cases(cases, model):
    manifest = model / "packed_experts" / "layout.json"
    document = json.loads(manifest.read_text())
    for path, value in numbers_in(document):
        for changed in {value + 1, 0, 1 << 62} - {value}:
            def damage(copy, p=path, v=changed):
                edited = json.loads(manifest.read_text())
                set_at(edited, p, v)
                (copy / "packed_experts" / "layout.json").write_text(json.dumps(edited))
            cases.run_damaged(f"layout.json {'.'.join(map(str, path))} = {changed}", model, damage,
                              ["layout.json"])

    def wrong_sum(copy):
        text = manifest.read_text()
        sums = json.loads(text)["layers"][0]["checksums"]
        (copy / "packed_experts" / "layout.json").write_text(
            text.replace(sums[0], sums[0][:-1] + ("0" if sums[0][-1] != "0" else "1")))
    cases.run_damaged("layout.json checksum edited", model, wrong_sum,
                      ["layer_00.bin", "checksum", "expert 0"])
    cases.run_damaged("layout.json missing", model,
                      lambda c: (c / "packed_experts" / "layout.json").unlink(), ["pack"])
    cases.run_damaged("layout.json cut", model,
                      edit_bytes("packed_experts/layout.json", lambda d: d[:len(d) // 2]),
                      ["layout.json"])
    for name in ("packed_experts/layer_00.bin", "packed_experts/layer_03.bin", "model_weights.bin"):
        base = Path(name).name

        # One bit in every twelfth: whichever of the twelve experts is used first is damaged.
        def flip(data):
            for part in range(12):
                data[(2 * part + 1) * len(data) // 24] ^= 16
            return data
        cases.run_damaged(f"{base}: bits flipped", model, edit_bytes(name, flip),
                          [base, "checksum"])
        cases.run_damaged(f"{base} one byte short", model, edit_bytes(name, lambda d: d[:-1]), [base])
        cases.run_damaged(f"{base} one byte long", model, edit_bytes(name, lambda d: d + b"x"), [base])
        cases.run_damaged(f"{base} missing", model, lambda c, n=name: (c / n).unlink(), [base])
    cases.run_damaged("model_weights.json missing", model,
                      lambda c: (c / "model_weights.json").unlink(), ["model_weights.json"])
    cases.run_damaged("resident tensor missing", model,
                      edit_json("model_weights.json", lambda d: d["tensors"].pop("lm_head.weight")),
                      ["model_weights.json"])
    cases.run_damaged("config.json of another size", model,
                      edit_json("config.json", lambda d: d["text_config"].update(num_experts=13)), [])
    cases.run_damaged("unfinished conversion", model,
                      lambda c: (c / "moepack.unfinished").touch(), ["not finished"])
    cases.run_damaged("cache below the floor", model, lambda c: None, ["--cache-mb"],
                      "--cache-mb", "1")
    cases.run_damaged("unknown backend", model, lambda c: None, ["abacus"], "--backend", "abacus")
    cases.run_damaged("unknown pack", model, lambda c: None, ["nothere"], "--pack", "nothere")


def companion_cases(cases):
    """Damages to what is copied beside the weights, which is looked at before anything is written."""
    tokenizer, generation = "tokenizer.json", "generation_config.json"

    def merge(document):
        document["model"]["merges"].append(["zzzqq", "qqzzz"])

    def twice(document):
        document["model"]["vocab"]["zzzqq"] = 5

    def pattern(document):
        for step in document["pre_tokenizer"]["pretokenizers"]:
            if "pattern" in step:
                step["pattern"] = {"Regex": "("}
    for dry_run in ([], ["--dry-run"]):
        cases.convert_damaged("tokenizer.json cut", edit_bytes(tokenizer, lambda d: d[:len(d) // 2]),
                              [tokenizer, "download it again"], *dry_run)
    cases.convert_damaged("merge of unknown tokens", edit_json(tokenizer, merge),
                          [tokenizer, "merges", "zzzqq"])
    cases.convert_damaged("id twice", edit_json(tokenizer, twice), [tokenizer, "zzzqq"])
    cases.convert_damaged("broken pattern", edit_json(tokenizer, pattern), [tokenizer, "pattern"])
    cases.convert_damaged("tokenizer_config.json is a list",
                          lambda s: (s / "tokenizer_config.json").write_text("[]"),
                          ["tokenizer_config.json", "object"])
    cases.convert_damaged("generation_config.json cut",
                          lambda s: (s / generation).write_text("{"), [generation])
    cases.convert_damaged("an end token beyond the vocabulary",
                          lambda s: (s / generation).write_text('{"eos_token_id": 1000000}'),
                          [generation, "eos_token_id"])

    def large(source):
        with open(source / tokenizer, "ab") as file:
            file.truncate((256 << 20) + 1)
    cases.convert_damaged("tokenizer.json too large", large, [tokenizer, str(256 << 20)])

    def directory(source):
        (source / "chat_template.jinja").unlink(missing_ok=True)
        (source / "chat_template.jinja").mkdir()
    cases.convert_damaged("chat template is a directory", directory,
                          ["chat_template.jinja", "regular file"])

    def loop(source):
        (source / tokenizer).unlink()
        (source / tokenizer).symlink_to(tokenizer)
    cases.convert_damaged("tokenizer.json is a loop", loop, [tokenizer, "link"])

    def dangling(source):
        (source / tokenizer).unlink()
        (source / tokenizer).symlink_to("../blobs/0123")
    cases.convert_damaged("tokenizer.json leads nowhere", dangling, [tokenizer, "../blobs/0123"])
    unsupported_tokenizer(cases)


def unsupported_tokenizer(cases):
    """A sound tokenizer of a kind that cannot be run is copied, with a note."""
    source, output = cases.scratch / "source", cases.scratch / "output"
    for path in (source, output):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(cases.checkpoint, source, ignore=shutil.ignore_patterns("golden"))
    edit_json("tokenizer.json", lambda d: d["model"].update(type="Unigram"))(source)
    result = cases.run("convert", source, "-o", output)
    cases.count += 1
    cases.expect(result.returncode == 0 and "Unigram" in result.stderr,
                 f"unsupported tokenizer: {result.returncode} {result.stderr}")
    cases.expect((output / "tokenizer.json").read_bytes() ==
                 (source / "tokenizer.json").read_bytes(), "unsupported tokenizer: not copied")
    cases.check("run with it", cases.run("run", output, "-p", "x", "-n", "1"),
                ["tokenizer.json", "Unigram"])
    cases.check("verify with it", cases.run("verify", output), ["tokenizer.json", "Unigram"])
    shutil.rmtree(output)


def tokenizer_cases(cases, model):
    def run_text(name, damage, names):
        copy = cases.scratch / "damaged-model"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model, copy)
        damage(copy)
        cases.check(name, cases.run("run", copy, "-p", "x", "-n", "1"), names)
        if (copy / tokenizer).exists():
            cases.check(f"verify: {name}", cases.run("verify", copy), names)

    tokenizer = "tokenizer.json"
    size = (model / tokenizer).stat().st_size
    for cut in (0, 1, size // 3, size // 2, size - 1):
        run_text(f"tokenizer.json cut at {cut}", edit_bytes(tokenizer, lambda d, n=cut: d[:n]),
                 [tokenizer])
    run_text("tokenizer.json missing", lambda c: (c / tokenizer).unlink(), [tokenizer])
    run_text("another tokenizer model",
             edit_json(tokenizer, lambda d: d["model"].update(type="Unigram")),
             [tokenizer, "Unigram"])
    run_text("another normalizer",
             edit_json(tokenizer, lambda d: d.update(normalizer={"type": "Lowercase"})),
             [tokenizer, "Lowercase"])
    run_text("id twice",
             edit_json(tokenizer, lambda d: d["model"]["vocab"].update({"zzzqq": 5})), [tokenizer])
    run_text("enormous id",
             edit_json(tokenizer, lambda d: d["model"]["vocab"].update({"zzzqq": 1 << 40})),
             [tokenizer])
    run_text("merge of unknown tokens",
             edit_json(tokenizer, lambda d: d["model"]["merges"].append(["zzzqq", "qqzzz"])),
             [tokenizer])
    cases.check("invalid UTF-8 prompt file",
                (lambda f: (f.write_bytes(b"ab\xffcd"), cases.run("run", model, "-f", f))[1])(
                    cases.scratch / "bad.txt"), ["bad.txt", "offset 2"])
    cases.check("a flag without its value", cases.run("verify", model, "--against", ""), ["--against is empty"])
    empty = cases.scratch / "empty.txt"
    empty.write_text("")
    cases.check("empty prompt", cases.run("run", model, "-f", empty), ["prompt"])
    ids = cases.scratch / "ids.bin"
    ids.write_bytes(b"123")
    out = cases.scratch / "never.f32"
    cases.check("odd id file", cases.run("logits", model, "--token-ids", ids, "-o", out), ["ids.bin"],
                out)
    ids.write_bytes(struct.pack("<i", 1 << 30))
    cases.check("id outside the vocabulary",
                cases.run("logits", model, "--token-ids", ids, "-o", out), [str(1 << 30)], out)


def idle_flags(cases, model):
    """A flag that nothing would follow is refused, not passed over."""
    out, never, pack = cases.scratch / "idle", cases.scratch / "never", model / "packed_experts"

    def idle(flag, *args):
        cases.check(f"{args[0]} with an idle {flag}", cases.run(*args), [flag], out)
    idle("--group-size", "convert", cases.checkpoint, "-o", out, "--group-size", 32)
    idle("--group-size", "convert", pack, "-o", model / "packed_experts_idle", "--group-size", 32)
    idle("--group-size", "plan", model, "--group-size", 32)
    for flags in (("--name", "x"), ("--page-size", 1), ("--row-order", "rows"), ("--restart",)):
        idle(flags[0], "overlay", model, "--gguf", never, "--tensors", "embedding", *flags)
    idle("--replace", "overlay", model, "--gguf", never, "--tensors", "experts", "--replace")
    for flags in (("--group-size", 32), ("--scale-dtype", "f16")):
        idle(flags[0], "import", model, *flags)
        idle(flags[0], "import", model, "--expert-format", "bf16", *flags)
    for flags in (("-c", 8), ("--max-tokens", 8), ("--ram-mb", 8), ("-t", 1), ("--cpu", "auto")):
        long_name = {"-c": "--ctx-size", "-t": "--threads"}.get(flags[0], flags[0])
        idle(long_name, "profile", model, "--add", never, "-o", out, *flags)
    idle("--pack", "profile", "--add", never, "-o", out, "--pack", "x")
    idle("--pack", "verify", pack, "--pack", "x")
    for path in (pack, cases.checkpoint):
        idle("--pack", "extract", path, "model.norm", "-o", out, "--pack", "x")


def main():
    args = options().parse_args()
    with tempfile.TemporaryDirectory(prefix="moepack-errors-") as scratch_name:
        scratch = Path(scratch_name)
        cases = Cases(args.program, args.checkpoint, scratch)
        model = scratch / "model"
        made = cases.run("convert", args.checkpoint, "-o", model)
        if made.returncode != 0:
            print(made.stderr)
            return 1
        safetensors_cases(cases)
        index_and_config_cases(cases)
        usage_cases(cases)
        model_cases(cases, model)
        companion_cases(cases)
        tokenizer_cases(cases, model)
        idle_flags(cases, model)
    cases.expect(cases.count >= 100, "too few cases")
    return conclude(cases.failures, f"{cases.count} damaged inputs, ")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Gemma 4 with experts: every form in which its checkpoints are written gives the same model, and
what is damaged or not computed is refused: exit code 2, one line, nothing left behind.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

from checkpoint_files import SHARD, read_tensors, write_tensors
from cli_runner import CliRunner, conclude, options

CONFIG = "config.json"
WRAPPER = "model.language_model."
LAYER = WRAPPER + "layers.1."
FULL = WRAPPER + "layers.2."


def is_text(name):
    return name.startswith(WRAPPER)


def renamed(tensors, rename):
    return {rename(name): value for name, value in tensors.items() if is_text(name)}


def flat(tensors):
    return renamed(tensors, lambda name: "model." + name[len(WRAPPER):])


def in_mlx(name):
    return "language_model.model." + name[len(WRAPPER):]


def halves(value):
    """gate_up_proj of all experts as gate and up."""
    dtype, (experts, rows, cols), content = value
    size = len(content) // experts // 2
    parts = [content[i * size:(i + 1) * size] for i in range(2 * experts)]
    return [(dtype, [experts, rows // 2, cols], b"".join(parts[half::2])) for half in (0, 1)]


def apart(tensors, stacked):
    """Gate and up apart: `stacked` in one tensor of all experts, as mlx-lm has them, else in one of
    each expert."""
    out = {}
    for name, value in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            parts = dict(zip(("gate_proj", "up_proj"), halves(value)))
        elif name.endswith("experts.down_proj"):
            parts = {"down_proj": value}
        else:
            out[name] = value
            continue
        folder = name[:name.rindex("experts.")] + "experts."
        for part, (dtype, (experts, rows, cols), content) in parts.items():
            if stacked:
                out[f"{folder}switch_glu.{part}.weight"] = (dtype, [experts, rows, cols], content)
                continue
            size = len(content) // experts
            for e in range(experts):
                out[f"{folder}{e}.{part}.weight"] = (
                    dtype, [rows, cols], content[e * size:(e + 1) * size])
    return out


def published(config):
    """The two numbers that published files have in place of per_layer_config."""
    text = config["text_config"]
    wide = next(iter(text.pop("per_layer_config").values()))
    text["global_head_dim"] = wide["head_dim"]
    text["num_global_key_value_heads"] = wide["num_key_value_heads"]
    return config


class Cases(CliRunner):
    def __init__(self, program, checkpoint, scratch):
        super().__init__(program, scratch)
        self.checkpoint = checkpoint
        self.config = json.loads((checkpoint / CONFIG).read_text())
        self.tensors = read_tensors(checkpoint)
        self.cases = 0

    def write(self, tensors, config):
        source = self.scratch / "source"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        write_tensors(source / SHARD, tensors)
        (source / CONFIG).write_text(json.dumps(config))
        return source

    def converted(self, name, tensors, config, *flags):
        model = self.scratch / name
        self.succeeds("convert", self.write(tensors, config), "-o", model, "--quiet", *flags)
        return model

    def refused(self, what, needles, tensors=None, config=None, *flags):
        self.cases += 1
        source = self.write(tensors or self.tensors, config or self.config)
        self.refuses(what, needles, "convert", source, "-o", self.scratch / "refused", "--quiet",
                     *flags)

    def without(self, name):
        return {n: value for n, value in self.tensors.items() if n != name}

    def with_text(self, **changes):
        config = json.loads(json.dumps(self.config))
        for key, value in changes.items():
            if value is ...:
                del config["text_config"][key]
            else:
                config["text_config"][key] = value
        return config


def layouts(cases):
    """Records and residents are the same bytes, whatever the names."""
    text = dict(cases.config["text_config"])
    forms = {
        "wrapper": (cases.tensors, cases.config),
        "published": (cases.tensors, published(json.loads(json.dumps(cases.config)))),
        "flat": (flat(cases.tensors), text),
        "by-expert": (apart(cases.tensors, False), cases.config),
        "mlx": (renamed(apart(cases.tensors, True), in_mlx), cases.config),
    }
    data = {}
    for name, (tensors, config) in forms.items():
        model = cases.converted(name, tensors, config)
        data[name] = [path.read_bytes() for path in
                      [*sorted((model / "packed_experts").glob("layer_*.bin")),
                       model / "model_weights.bin"]]
        cases.expect(data[name] == data["wrapper"], f"{name}: other bytes than of wrapper")
    whole = cases.scratch / "whole"
    cases.succeeds("convert", cases.checkpoint, "-o", whole, "--quiet")
    cases.succeeds("verify", whole, "--against", cases.checkpoint)


def quantized(cases):
    model = cases.converted("q4", cases.tensors, cases.config, "--expert-format", "q4",
                            "--group-size", "32")
    layout = (model / "packed_experts" / "layout.json").read_text()
    cases.expect('"q4"' in layout, "no q4 in layout.json")
    cases.succeeds("verify", model)
    pack = cases.scratch / "wrapper"
    cases.succeeds("quantize", pack, "--name", "rounded", "--bits", "4", "--group-size", "32",
                   "--method", "rtn")
    ids = cases.scratch / "ids.json"
    ids.write_text(json.dumps([(i * 977 + 31) % 56 for i in range(300)]))
    calibration = cases.scratch / "calibration"
    cases.succeeds("calibrate", pack, "--token-ids", ids, "-o", calibration, "-c", "64")
    cases.succeeds("quantize", pack, "--name", "gptq", "--bits", "3", "--group-size", "32",
                   "--method", "gptq", "--calibration", calibration)
    cases.succeeds("sensitivity", pack, "--calibration", calibration, "--group-size", "32",
                   "--bits", "2,8", "--target-bpw", "8", "-o", cases.scratch / "allocation")
    cases.succeeds("profile", "--calibration", calibration, "-o", cases.scratch / "profile")
    for command in (("export", "--gguf", pack, "-o", cases.scratch / "m.gguf"),
                    ("export", pack, "-o", cases.scratch / "engines")):
        cases.refuses(command[0], ["gemma4_text"], *command)


def refusals(cases):
    for name in ("router.proj.weight", "router.scale", "router.per_expert_scale", "layer_scalar",
                 "experts.down_proj", "post_feedforward_layernorm_1.weight",
                 "mlp.gate_proj.weight", "self_attn.v_proj.weight"):
        cases.refused(f"{name} missing", ["layers.1.", name.removesuffix(".weight").split(".")[-1]],
                      cases.without(LAYER + name))
    value = cases.tensors[LAYER + "self_attn.v_proj.weight"]
    cases.refused("v_proj where values are keys", ["layers.2.self_attn.v_proj", "leaves out"],
                  {**cases.tensors, FULL + "self_attn.v_proj.weight": value})
    for name, shape in (("self_attn.q_proj.weight", [32, 64]), ("self_attn.k_norm.weight", [8]),
                        ("router.per_expert_scale", [5]), ("experts.down_proj", [6, 32, 64])):
        count = 2
        for size in shape:
            count *= size
        content = cases.tensors[FULL + name][2][:count]
        cases.refused(f"{name} of another shape", ["layers.2.", name.removesuffix(".weight")],
                      {**cases.tensors, FULL + name: ("BF16", shape, content)})
    cases.refused("a tensor of per-layer inputs", ["embed_tokens_per_layer"],
                  {**cases.tensors, WRAPPER + "embed_tokens_per_layer.weight":
                   ("BF16", [2, 2], bytes(8))})
    for key, change in (("hidden_size_per_layer_input", 256), ("num_kv_shared_layers", 1),
                        ("hidden_size_per_layer_input", ...), ("enable_moe_block", False),
                        ("use_bidirectional_attention", "all"), ("hidden_activation", "silu"),
                        ("attention_bias", True), ("top_k_experts", 7), ("num_experts", ...),
                        ("final_logit_softcapping", 0), ("layer_types", ["full_attention"]),
                        ("per_layer_config", {"0": {"head_dim": 16}})):
        cases.refused(f"{key} = {change}", [CONFIG, key], None, cases.with_text(**{key: change}))


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cases = Cases(args.program, args.checkpoint, Path(scratch))
        layouts(cases)
        quantized(cases)
        refusals(cases)
        return conclude(cases.failures, f"{cases.cases} refusals, {cases.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

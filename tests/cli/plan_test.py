#!/usr/bin/env python3
"""`moepack plan` and `moepack doctor`: one plan for a checkpoint, its heads and the model made of it;
the same refusals as run's; sizes of a published model against numbers worked out by hand; hostile
heads are refused in one line; nothing is left behind."""
import json
import shutil
import sys
import tempfile
from pathlib import Path

from cli_runner import CliRunner, conclude, listing, options

INDEX = "model.safetensors.index.json"
FAST = ("--disk-gbs", 1)  # nothing of the disk is measured
MEMORY = ("resident", "key_value", "recurrent", "scratch", "lists", "cache", "saved")


class Plans(CliRunner):
    def __init__(self, program, checkpoint, scratch):
        super().__init__(program, scratch)
        self.checkpoint = checkpoint
        self.model = scratch / "model"
        self.heads = scratch / "heads"
        self.succeeds("convert", checkpoint, "-o", self.model, "--quiet")
        self.heads.mkdir()
        for name in ("config.json", INDEX):
            shutil.copy(checkpoint / name, self.heads)

    def plan(self, *args):
        result = self.succeeds("plan", "--json", *args)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def check_numbers(self):
        plan = self.plan(self.model, "-c", 512, *FAST)
        memory = plan["memory"]
        self.expect(sum(memory[part] for part in MEMORY) == memory["total"], f"sum: {memory}")
        self.expect(plan["verdict"] == "OK" and plan["reason"] == "", plan["verdict"])
        self.expect(plan["cache_share"] == 1, "the cache holds everything")
        rates = [row["hit_rate"] for row in plan["speed"]]
        self.expect(rates == [0, 0.5, 0.7, 0.9, 1], f"hit rates {rates}")
        layout = json.loads((self.model / "packed_experts" / "layout.json").read_text())
        record = layout["expert_size"]
        used = plan["num_layers"] * plan["experts_per_token"]
        for row in plan["speed"]:
            expected = used * record * (1 - row["hit_rate"])
            self.expect(abs(row["missed_bytes"] - expected) < 1, f"{row} for {expected}")
        speeds = [row["tokens_per_second"] for row in plan["speed"]]
        self.expect(speeds == sorted(speeds) and speeds[0] > 0, f"speeds {speeds}")
        asked = self.plan(self.model, "--hit-rate", 33, *FAST)
        self.expect(0.33 in [row["hit_rate"] for row in asked["speed"]], "--hit-rate")
        two = self.plan(self.model, "-c", 512, "--parallel", 2, *FAST)["memory"]
        self.expect(two["key_value"] == 2 * memory["key_value"], "--parallel")

    def check_kinds(self):
        """The checkpoint, its heads and its model take the same memory."""
        flags = ("-c", 512, "--ram-mb", 200, *FAST)
        model = self.plan(self.model, *flags)
        checkpoint = self.plan(self.checkpoint, *flags)
        heads = self.plan(self.heads, *flags)
        kinds = [plan["kind"] for plan in (model, checkpoint, heads)]
        self.expect(kinds == ["model", "checkpoint", "headers"], f"kinds {kinds}")
        for other in (checkpoint, heads):
            for part in (*MEMORY, "pack", "cache_floor", "available"):
                mine, its = model["memory"][part], other["memory"][part]
                # The list of what was left out is part of a converted model's manifest.
                self.expect(abs(mine - its) <= (4096 if part == "lists" else 0),
                            f"{other['kind']}, {part}: {its}, the model {mine}")
            on_disk = sum(p.stat().st_size for p in self.model.rglob("*.bin"))
            self.expect(0 <= other["converted_bytes"] - on_disk < 100_000,
                        f"{other['kind']}: {other['converted_bytes']} for {on_disk} on the disk")
        small = self.plan(self.heads, "--expert-format", "q2", *flags)
        # q2 and q4 in groups of 64: 2.5 and 4.5 bits.
        self.expect(abs(small["memory"]["pack"] / model["memory"]["pack"] - 2.5 / 4.5) < 0.02,
                    "--expert-format q2")
        gguf = self.scratch / "model.gguf"
        self.succeeds("export", self.model, "--gguf", "-o", gguf)
        self.expect(self.plan(gguf, *flags)["kind"] == "gguf", "kind of a GGUF file")
        gguf.unlink(missing_ok=True)

    def check_text(self):
        before = listing(self.scratch)
        text = self.succeeds("plan", self.heads).stdout
        for word in ("residents", "keys and values", "recurrent states", "scratch", "expert cache",
                     "total", "tokens/s", "verdict: OK", "bf16", "a temporary file"):
            self.expect(word in text, f"no {word!r} in {text}")
        self.expect(listing(self.scratch) == before, "plan left something behind")

    def refusal(self, what, *flags):
        """plan refuses what run refuses, in the same words; gives the line."""
        plan = self.run("plan", self.model, *FAST, *flags)
        run = self.run("run", self.model, "-p", "a", "-n", 1, *flags)
        self.expect(plan.returncode == run.returncode == 2, f"{what}: {plan.returncode}, {run.returncode}")
        self.expect(plan.stderr == run.stderr and plan.stderr.count("\n") == 1,
                    f"{what}: plan says {plan.stderr!r}, run {run.stderr!r}")
        return plan

    def check_refusals(self):
        plan = self.refusal("little memory", "--ram-mb", 5)
        self.expect("verdict: REFUSE" in plan.stdout and "5242880 are available" in plan.stderr,
                    plan.stdout + plan.stderr)
        self.refusal("a small cache", "--cache-mb", 1, "--ram-mb", 100)
        self.refusal("a long context", "-c", 4_000_000, "--ram-mb", 100)
        self.refusal("everything at once", "-c", 100_000, "--chunk", 9000, "--ram-mb", 40)
        self.refusal("cache-aware routing of more experts than there are", "--car", "1,9999")
        self.refusal("two flags that exclude each other", "--car", "1,4", "--lookahead", 2)
        self.refusal("a reader that cannot read so", "--io", "mmap", "--io-engine", "uring")
        self.refusal("a directory without layers", "--pack-dir", self.scratch)
        self.refusal("a profile that is not there", "--pin", self.scratch / "none")
        for flag in ("--pack-dir", "--pack"):
            self.refuses(f"{flag} of a checkpoint", ["no model directory", flag], "plan", self.checkpoint,
                         *FAST, flag, self.scratch)
        self.refuses("a profile of a checkpoint", ["none"], "plan", self.checkpoint, *FAST, "--pin",
                     self.scratch / "none")
        self.refuses("a reader for a checkpoint", ["--io-engine"], "plan", self.checkpoint, *FAST, "--io",
                     "mmap", "--io-engine", "uring")
        refused = self.run("plan", "--json", self.model, "--ram-mb", 5, *FAST)
        self.expect(refused.returncode == 2 and json.loads(refused.stdout)["verdict"] == "REFUSE",
                    "JSON of a refusal")
        answers = set()
        for ram in range(6, 60, 5):
            flags = ("-c", 256, "--ram-mb", ram)
            codes = [self.run("plan", self.model, *FAST, *flags).returncode,
                     self.run("run", self.model, "-p", "a", "-n", 1, *flags).returncode]
            self.expect(codes[0] == codes[1], f"{ram} MiB: plan {codes[0]}, run {codes[1]}")
            answers.add(codes[0])
        self.expect(answers == {0, 2}, f"answers {answers}")

    def check_tight(self):
        tight = self.plan(self.model, "--cache-mb", 2, "--ram-mb", 200, *FAST)
        self.expect(tight["verdict"] == "TIGHT", tight["verdict"])
        self.expect(tight["remedy"].startswith("give --cache-mb "), tight["remedy"])
        enough = tight["remedy"].split()[2]
        self.expect(self.plan(self.model, "--cache-mb", enough, "--ram-mb", 200, *FAST)["verdict"]
                    == "OK", f"--cache-mb {enough}")

    def check_hostile(self):
        index, config = self.heads / INDEX, self.heads / "config.json"
        whole, whole_config = index.read_bytes(), config.read_text()
        for size in range(0, len(whole), len(whole) // 12):
            index.write_bytes(whole[:size])
            self.refuses(f"index of {size} bytes", [INDEX], "plan", self.heads)
        document = json.loads(whole)

        def damaged(name, needles, change):
            changed = json.loads(whole)
            change(changed["weight_map"])
            index.write_text(json.dumps(changed))
            self.refuses(name, needles, "plan", self.heads)

        some = next(name for name in document["weight_map"] if ".layers.2." in name)
        damaged("a tensor that is missing", ["missing in the index"], lambda m: m.pop(
            next(name for name in m if name.endswith("mlp.gate.weight"))))
        damaged("a tensor of nowhere", ["surprise"], lambda m: m.update(
            {some.replace(".layers.2.", ".layers.2.surprise."): "model.safetensors"}))
        damaged("a shard elsewhere", ["leads out of the directory"],
                lambda m: m.update({some: "../../etc/passwd"}))
        damaged("a layer too many", ["layer 9999"], lambda m: m.update(
            {some.replace(".layers.2.", ".layers.9999."): "model.safetensors"}))
        index.write_bytes(whole)
        changed = json.loads(whole_config)
        changed["text_config"].update(num_hidden_layers=900_000, layer_types=None)
        config.write_text(json.dumps(changed))
        self.refuses("a config of 900,000 layers", [], "plan", self.heads)
        config.write_text(whole_config[:100])
        self.refuses("half a config", ["config.json"], "plan", self.heads)
        config.write_text(whole_config)
        index.unlink()
        self.refuses("no index", [INDEX], "plan", self.heads)
        index.write_bytes(whole)
        self.refuses("formats of a model", ["--expert-format"], "plan", self.model,
                     "--expert-format", "q2")
        self.refuses("a pack", ["part of a model"], "plan", self.model / "packed_experts")
        self.refuses("nothing", ["no such file"], "plan", self.scratch / "nothing")
        self.refuses("a hit rate of 101", ["--hit-rate"], "plan", self.model, "--hit-rate", 101)

    def check_published(self):
        """Qwen3.5-35B-A3B from heads, against sizes worked out by hand from its config.json."""
        heads = self.scratch / "published"
        write_published_heads(heads)
        flags = (heads, "--resident", "q4", "-c", 4096, "--ram-mb", 12000, *FAST)
        plan = self.plan(*flags, "--expert-format", "q4")
        memory = plan["memory"]
        self.expect(memory["pack"] == 40 * 256 * 1_769_472, f"pack {memory['pack']}")
        self.expect(memory["cache_floor"] == 40 * 8 * 1_769_472, f"floor {memory['cache_floor']}")
        # Beside the keys and values themselves, their blocks; beside the states what is left of a
        # block of tokens.
        self.expect(1 <= memory["key_value"] / (4096 * 20_480) < 1.001, f"keys {memory['key_value']}")
        self.expect(1 <= memory["recurrent"] / (60 << 20) < 1.3, f"states {memory['recurrent']}")
        # 2.448e9 parameters in 4.5 bits; routers have 8.5, and norms stay floats.
        self.expect(1.375e9 < memory["resident"] < 1.40e9, f"residents {memory['resident']}")
        two = self.plan(*flags, "--expert-format", "q2")["memory"]
        self.expect(two["pack"] == 40 * 256 * 983_040, f"pack of q2 {two['pack']}")

    def check_doctor(self):
        before = listing(self.scratch)
        doctor = json.loads(self.succeeds("doctor", "--json", "--dir", self.heads).stdout)
        self.expect(listing(self.scratch) == before, "doctor left something behind")
        areas = {finding["area"] for finding in doctor["findings"]}
        self.expect(areas == {"disk", "memory", "processor", "gpu", "limits"}, f"areas {areas}")
        self.expect(all(f["level"] in ("OK", "NOTE", "PROBLEM") and f["text"]
                        for f in doctor["findings"]), "a finding without level or text")
        self.expect(doctor["disk"]["random_bytes_per_second"] > 0, "no rate of the disk")
        self.expect(len(doctor["models"]) == 12, f"{len(doctor['models'])} rows")
        text = self.succeeds("doctor", "--dir", self.heads).stdout
        self.expect("Qwen3.5-35B-A3B" in text and "limits\n" in text, text)
        self.refuses("a directory that is not there", ["no such directory", "--dir"], "doctor",
                     "--dir", self.scratch / "nothing")


def write_published_heads(directory):
    directory.mkdir()
    layers = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(40)]
    config = {"model_type": "qwen3_5_moe", "text_config": {
        "model_type": "qwen3_5_moe_text", "vocab_size": 248320, "hidden_size": 2048,
        "num_hidden_layers": 40, "layer_types": layers, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "tie_word_embeddings": False,
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-6}}
    (directory / "config.json").write_text(json.dumps(config))
    common = ["input_layernorm.weight", "post_attention_layernorm.weight", "mlp.gate.weight",
              "mlp.shared_expert_gate.weight", "mlp.shared_expert.gate_proj.weight",
              "mlp.shared_expert.up_proj.weight", "mlp.shared_expert.down_proj.weight",
              "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    linear = [f"linear_attn.{name}" for name in (
        "in_proj_qkv.weight", "in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight",
        "conv1d.weight", "A_log", "dt_bias", "norm.weight", "out_proj.weight")]
    full = [f"self_attn.{name}.weight" for name in (
        "q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")]
    names = ["model.language_model.embed_tokens.weight", "model.language_model.norm.weight",
             "lm_head.weight", "model.visual.blocks.0.norm1.weight", "mtp.fc.weight"]
    for i, kind in enumerate(layers):
        for name in common + (full if kind == "full_attention" else linear):
            names.append(f"model.language_model.layers.{i}.{name}")
    shard = "model-00001-of-00014.safetensors"
    (directory / INDEX).write_text(json.dumps({"weight_map": {name: shard for name in names}}))


def main():
    args = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plans = Plans(args.program, args.checkpoint, Path(scratch))
        plans.check_numbers()
        plans.check_kinds()
        plans.check_text()
        plans.check_refusals()
        plans.check_tight()
        plans.check_hostile()
        plans.check_published()
        plans.check_doctor()
        return conclude(plans.failures, f"{plans.runs} runs, {plans.checks} checks, ")


if __name__ == "__main__":
    sys.exit(main())

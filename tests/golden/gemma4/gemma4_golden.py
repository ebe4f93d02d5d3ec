#!/usr/bin/env python3
"""A small random checkpoint of gemma4 with experts, and what transformers computes with it.

usage: gemma4_golden.py OUTPUT [--seed N] [--scale N]

Needs torch and transformers (5.24). Every width differs from every other; the window is shorter than
the text, so that it hides something; logits reach the softcap. --scale multiplies the widths.
"""
import argparse
import json
import os

import torch
import transformers
from transformers import Gemma4Config, Gemma4ForConditionalGeneration
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig, Gemma4VisionConfig

TOKENS = 24


def make_config(scale):
    text = Gemma4TextConfig(
        vocab_size=56, hidden_size=64 * scale, intermediate_size=12 * scale, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8 * scale, global_head_dim=12 * scale,
        num_global_key_value_heads=1, attention_k_eq_v=True, max_position_embeddings=512,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], sliding_window=7,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                               "rope_theta": 1000000.0}},
        enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=32 * scale,
        hidden_size_per_layer_input=0, vocab_size_per_layer_input=56,
        final_logit_softcapping=4.0, eos_token_id=1, bos_token_id=2, pad_token_id=0)
    vision = Gemma4VisionConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=4, patch_size=2, position_embedding_size=4,
        pooling_kernel_size=1)
    return Gemma4Config(text_config=text, vision_config=vision, audio_config=None,
                        image_token_id=48, video_token_id=49, audio_token_id=50,
                        boi_token_id=51, eoi_token_id=52, boa_token_id=53, eoa_token_index=54)


def fill(model, generator):
    def normal(tensor, deviation):
        return torch.randn(tensor.shape, generator=generator) * deviation

    with torch.no_grad():
        for name, p in model.named_parameters():
            if "embed_tokens" in name:
                p.copy_(normal(p, 0.3))
            elif p.ndim >= 2:
                p.copy_(normal(p, 1.2 / p.shape[-1] ** 0.5))
            else:  # norms, router.scale, per_expert_scale
                p.copy_(1 + normal(p, 0.2))
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.copy_(0.8 + normal(b, 0.2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = Gemma4ForConditionalGeneration(make_config(arguments.scale)).float()
    fill(model, torch.Generator().manual_seed(arguments.seed * 100 + 7))
    os.makedirs(arguments.output, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(arguments.output)
    model = Gemma4ForConditionalGeneration.from_pretrained(
        arguments.output, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(3, 48, (1, TOKENS), generator=torch.Generator().manual_seed(arguments.seed))
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    hidden = torch.stack([h[0] for h in out.hidden_states]).float()
    out.logits[0].float().numpy().astype("<f4").tofile(arguments.output + "/golden_logits.f32")
    hidden.numpy().astype("<f4").tofile(arguments.output + "/golden_hidden.f32")
    with open(arguments.output + "/golden.json", "w", encoding="utf-8") as file:
        json.dump({"ids": ids[0].tolist(), "logits_shape": list(out.logits[0].shape),
                   "hidden_shape": list(hidden.shape),
                   "transformers": transformers.__version__}, file)
    print("logits deviate by", out.logits.std().item(), "the largest is", out.logits.abs().max().item())


if __name__ == "__main__":
    main()

// A complete qwen3_5_moe checkpoint of a few hundred kilobytes with random weights, written where a
// test wants it: end-to-end tests need no download.
//
// One seed makes one model: a tensor's values depend on the seed and its name in the per-expert
// layout alone, so the layouts hold the same weights (MLX: after rounding to its codes). Sizes are
// chosen so that swapped ones show: hidden size, expert width and shared width differ, key and
// value heads of the linear attention too, and neither the hidden size nor the number of experts is
// a power of two.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/dtype.h"
#include "tests/support/safetensors_writer.h"

namespace moepack::test {

enum class TinyLayout {
  kPerExpert,     // text model, prefix `model.`, one tensor per expert and projection
  kFusedWrapper,  // published form: `model.language_model.`, fused gate_up_proj, vision and MTP
  kMlx,           // mlx-lm: `language_model.model.`, stacked switch_mlp, affine codes, norms as 1+w
};

struct TinyModelOptions {
  TinyLayout layout = TinyLayout::kPerExpert;
  std::uint64_t seed = 1;

  std::uint32_t vocab_size = 288;  // at least 262: the tokenizer's
  std::uint32_t hidden_size = 96;
  std::uint32_t num_layers = 4;
  std::uint32_t full_attention_interval = 4;
  std::uint32_t num_experts = 6;
  std::uint32_t experts_per_token = 3;
  std::uint32_t expert_width = 64;
  std::uint32_t shared_expert_width = 32;
  std::uint32_t num_heads = 6;
  std::uint32_t num_kv_heads = 2;
  std::uint32_t head_dim = 32;
  double partial_rotary_factor = 0.25;
  std::uint32_t linear_key_heads = 2;
  std::uint32_t linear_value_heads = 4;
  std::uint32_t linear_key_dim = 16;
  std::uint32_t linear_value_dim = 40;
  std::uint32_t linear_conv_taps = 4;

  bool state_in_f32 = false;  // A_log and dt_bias as F32, as some exports have them

  // kMlx only. Modules whose inputs are no multiple of the group stay BF16, by MLX's rule.
  std::uint32_t bits = 4;
  std::uint32_t group_size = 32;
  std::uint32_t router_bits = 8;  // of mlp.gate and shared_expert_gate, stated per module
  DType scale_type = DType::kBf16;

  std::uint32_t shards = 1;  // more than one: with an index
  WriterOptions writer = {};
  bool with_tokenizer = true;  // tokenizer.json, tokenizer_config.json, chat_template.jinja
};

// The contents of the checkpoint's config.json.
nlohmann::ordered_json tiny_model_config(const TinyModelOptions& options);
// The checkpoint's tensors, sorted by name.
std::vector<WriterTensor> tiny_model_tensors(const TinyModelOptions& options);

// Creates `directory` and writes all files of the checkpoint into it.
void write_tiny_model(const std::filesystem::path& directory, const TinyModelOptions& options = {});

}  // namespace moepack::test

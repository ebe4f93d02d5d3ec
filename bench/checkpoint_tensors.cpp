#include "bench/checkpoint_tensors.h"

#include <cmath>
#include <utility>

#include "formats/base/checksum.h"

namespace moepack::bench {
namespace {

using Shape = std::vector<std::uint64_t>;

constexpr std::uint64_t kGroup = 64;

std::uint64_t key_of(std::string_view name) {
  return checksum(std::as_bytes(std::span(name.data(), name.size())));
}

class Builder {
 public:
  Builder(const ModelConfig& shape, CheckpointForm form) : shape_(shape), form_(form) {}

  Result<std::vector<TensorSpec>> build();

 private:
  bool is_mlx() const { return form_ == CheckpointForm::kMlx4Bit; }
  std::string prefix() const {
    if (is_mlx()) return "language_model.model.";
    return form_ == CheckpointForm::kBf16Fused ? "model.language_model." : "model.";
  }

  void add(std::string name, DType dtype, Shape shape, ValueKind kind, float center, float spread) {
    const std::uint64_t key = key_of(name);
    tensors_.push_back({std::move(name), dtype, std::move(shape), kind, center, spread, key});
  }
  void add_small(std::string name, Shape shape, float center, float spread,
                 DType dtype = DType::kBf16) {
    add(std::move(name), dtype, std::move(shape), ValueKind::kUniform, center, spread);
  }
  // RMSNorm factors are stored as w of 1 + w, except in MLX's form, which stores the sum.
  void add_norm(const std::string& module, std::uint64_t size) {
    add_small(module + ".weight", {size}, is_mlx() ? 1 : 0, 0.3F);
  }
  // Adds a matrix [.., out, in]; `name` is that of the tensor, with .weight where it has one.
  void add_matrix(const std::string& name, Shape shape, double std, std::uint32_t mlx_bits = 4);
  void add_linear(const std::string& module, std::uint64_t out, std::uint64_t in, double gain = 1,
                  std::uint32_t mlx_bits = 4) {
    add_matrix(module + ".weight", {out, in}, linear_std(in, gain), mlx_bits);
  }
  // The spread is 0.02 at 2048 inputs, so that activations keep their size.
  static double linear_std(std::uint64_t in, double gain) {
    return gain * 0.905 / std::sqrt(static_cast<double>(in));
  }
  // The spread of the projections that add to the residual stream.
  double residual_gain() const { return 1 / std::sqrt(2.0 * shape_.num_layers); }

  void add_linear_attention(const std::string& at);
  void add_full_attention(const std::string& at);
  void add_experts(const std::string& at);
  void add_mlp(const std::string& at);

  const ModelConfig& shape_;
  CheckpointForm form_;
  std::vector<TensorSpec> tensors_;
  std::string unfit_;  // first matrix that MLX's groups do not fit
};

void Builder::add_matrix(const std::string& name, Shape shape, double std, std::uint32_t mlx_bits) {
  const auto spread = static_cast<float>(std);
  if (!is_mlx()) return add(name, DType::kBf16, std::move(shape), ValueKind::kWeight, 0, spread);
  if (shape.back() % kGroup != 0 && unfit_.empty()) unfit_ = name;
  const bool is_8bit = mlx_bits == 8;
  const std::string module = name.substr(0, name.size() - std::string_view(".weight").size());
  Shape codes = shape;
  codes.back() = shape.back() * mlx_bits / 32;
  add(name, DType::kU32, std::move(codes), is_8bit ? ValueKind::kCode8 : ValueKind::kCode4, 0, 0);
  shape.back() /= kGroup;
  const std::uint64_t key = key_of(module);  // shared: a group's bias belongs to its scale
  for (const bool is_scale : {true, false}) {
    const ValueKind four = is_scale ? ValueKind::kScale4 : ValueKind::kBias4;
    const ValueKind eight = is_scale ? ValueKind::kScale8 : ValueKind::kBias8;
    add(module + (is_scale ? ".scales" : ".biases"), DType::kBf16, shape, is_8bit ? eight : four, 0,
        spread);
    tensors_.back().key = key;
  }
}

void Builder::add_linear_attention(const std::string& at) {
  const std::uint64_t keys = std::uint64_t{shape_.linear_key_heads} * shape_.linear_key_dim;
  const std::uint64_t values = std::uint64_t{shape_.linear_value_heads} * shape_.linear_value_dim;
  const std::uint64_t channels = 2 * keys + values;
  const std::uint64_t taps = shape_.linear_conv_taps;
  add_linear(at + "in_proj_qkv", channels, shape_.hidden_size);
  add_linear(at + "in_proj_z", values, shape_.hidden_size);
  add_linear(at + "in_proj_b", shape_.linear_value_heads, shape_.hidden_size);
  add_linear(at + "in_proj_a", shape_.linear_value_heads, shape_.hidden_size);
  add_small(at + "conv1d.weight", is_mlx() ? Shape{channels, taps, 1} : Shape{channels, 1, taps}, 0,
            0.5F);
  // The decays reach from forgetting at once to remembering thousands of tokens, as in trained
  // models.
  add_small(at + "A_log", {shape_.linear_value_heads}, 0.5F, 2.0F,
            is_mlx() ? DType::kF32 : DType::kBf16);
  add_small(at + "dt_bias", {shape_.linear_value_heads}, -2.0F, 3.0F);
  add_small(at + "norm.weight", {shape_.linear_value_dim}, 0.9F, 0.2F);
  add_linear(at + "out_proj", shape_.hidden_size, values, residual_gain());
}

void Builder::add_full_attention(const std::string& at) {
  const std::uint64_t queries = std::uint64_t{shape_.num_heads} * shape_.head_dim;
  const std::uint64_t keys = std::uint64_t{shape_.num_kv_heads} * shape_.head_dim;
  add_linear(at + "q_proj", 2 * queries, shape_.hidden_size);
  add_linear(at + "k_proj", keys, shape_.hidden_size);
  add_linear(at + "v_proj", keys, shape_.hidden_size);
  add_linear(at + "o_proj", shape_.hidden_size, queries, residual_gain());
  add_norm(at + "q_norm", shape_.head_dim);
  add_norm(at + "k_norm", shape_.head_dim);
}

void Builder::add_experts(const std::string& at) {
  const std::uint64_t hidden = shape_.hidden_size;
  const std::uint64_t width = shape_.expert_width;
  const std::uint64_t experts = shape_.num_experts;
  const double in_std = linear_std(hidden, 1);
  const double out_std = linear_std(width, residual_gain());
  switch (form_) {
    case CheckpointForm::kBf16:
      for (std::uint64_t e = 0; e < experts; ++e) {
        const std::string expert = at + "experts." + std::to_string(e) + ".";
        add_matrix(expert + "gate_proj.weight", {width, hidden}, in_std);
        add_matrix(expert + "up_proj.weight", {width, hidden}, in_std);
        add_matrix(expert + "down_proj.weight", {hidden, width}, out_std);
      }
      return;
    case CheckpointForm::kBf16Fused:
      add_matrix(at + "experts.gate_up_proj", {experts, 2 * width, hidden}, in_std);
      add_matrix(at + "experts.down_proj", {experts, hidden, width}, out_std);
      return;
    case CheckpointForm::kMlx4Bit:
      add_matrix(at + "switch_mlp.gate_proj.weight", {experts, width, hidden}, in_std);
      add_matrix(at + "switch_mlp.up_proj.weight", {experts, width, hidden}, in_std);
      add_matrix(at + "switch_mlp.down_proj.weight", {experts, hidden, width}, out_std);
      return;
  }
}

void Builder::add_mlp(const std::string& at) {
  add_linear(at + "gate", shape_.num_experts, shape_.hidden_size, 1, 8);
  add_experts(at);
  add_linear(at + "shared_expert.gate_proj", shape_.shared_expert_width, shape_.hidden_size);
  add_linear(at + "shared_expert.up_proj", shape_.shared_expert_width, shape_.hidden_size);
  add_linear(at + "shared_expert.down_proj", shape_.hidden_size, shape_.shared_expert_width,
             residual_gain());
  add_linear(at + "shared_expert_gate", 1, shape_.hidden_size, 1, 8);
}

Result<std::vector<TensorSpec>> Builder::build() {
  add_matrix(prefix() + "embed_tokens.weight", {shape_.vocab_size, shape_.hidden_size}, 0.02);
  for (std::uint32_t i = 0; i < shape_.num_layers; ++i) {
    const std::string at = prefix() + "layers." + std::to_string(i) + ".";
    add_norm(at + "input_layernorm", shape_.hidden_size);
    if (shape_.layer_type(i) == LayerType::kFullAttention) {
      add_full_attention(at + "self_attn.");
    } else {
      add_linear_attention(at + "linear_attn.");
    }
    add_norm(at + "post_attention_layernorm", shape_.hidden_size);
    add_mlp(at + "mlp.");
  }
  add_norm(prefix() + "norm", shape_.hidden_size);
  add_linear(is_mlx() ? "language_model.lm_head" : "lm_head", shape_.vocab_size,
             shape_.hidden_size);
  if (unfit_.empty()) return std::move(tensors_);
  return invalid_argument("the inputs of " + unfit_ + " are no multiple of 64",
                          "the form mlx-4bit has groups of 64");
}

}  // namespace

Result<std::vector<TensorSpec>> checkpoint_tensors(const ModelConfig& shape, CheckpointForm form) {
  return Builder(shape, form).build();
}

std::vector<TensorSpec> skipped_tensors(const ModelConfig& shape, CheckpointForm form) {
  const std::string vision = form == CheckpointForm::kMlx4Bit ? "vision_tower." : "model.visual.";
  const std::uint64_t hidden = shape.hidden_size;
  const std::uint64_t width = shape.expert_width;
  const std::vector<std::pair<std::string, Shape>> list{
      {vision + "patch_embed.proj.weight", {64, 3, 2, 16, 16}},
      {vision + "blocks.0.attn.qkv.weight", {192, 64}},
      {vision + "merger.linear_fc2.weight", {hidden, 64}},
      {"mtp.fc.weight", {hidden, 2 * hidden}},
      {"mtp.norm.weight", {hidden}},
      {"mtp.layers.0.mlp.experts.gate_up_proj", {2, 2 * width, hidden}},
      {"mtp.layers.0.mlp.experts.down_proj", {2, hidden, width}}};
  std::vector<TensorSpec> tensors;
  tensors.reserve(list.size());
  for (const auto& [name, dimensions] : list) {
    tensors.push_back(
        {name, DType::kBf16, dimensions, ValueKind::kUniform, 0, 0.05F, key_of(name)});
  }
  return tensors;
}

TensorSpec filler_tensor(std::uint64_t number, CheckpointForm form) {
  const std::string vision = form == CheckpointForm::kMlx4Bit ? "vision_tower." : "model.visual.";
  std::string name = vision + "blocks." + std::to_string(number) + ".filler.weight";
  const std::uint64_t key = key_of(name);
  return {std::move(name), DType::kBf16, {1}, ValueKind::kUniform, 0, 1, key};
}

}  // namespace moepack::bench

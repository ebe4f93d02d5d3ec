#include "convert/source/tensor_names.h"

#include <algorithm>
#include <array>

namespace moepack {
namespace {

using Shape = std::vector<std::uint64_t>;

std::uint64_t key_rows(const ModelConfig& c) {
  return std::uint64_t{c.linear_key_heads} * c.linear_key_dim;
}
std::uint64_t value_rows(const ModelConfig& c) {
  return std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
}
std::uint64_t query_rows(const ModelConfig& c) { return std::uint64_t{c.num_heads} * c.head_dim; }
std::uint64_t kv_rows(const ModelConfig& c) { return std::uint64_t{c.num_kv_heads} * c.head_dim; }

Shape hidden(const ModelConfig& c) { return {c.hidden_size}; }
Shape vocabulary(const ModelConfig& c) { return {c.vocab_size, c.hidden_size}; }
Shape value_heads(const ModelConfig& c) { return {c.linear_value_heads}; }
Shape value_heads_by_hidden(const ModelConfig& c) { return {c.linear_value_heads, c.hidden_size}; }
Shape head(const ModelConfig& c) { return {c.head_dim}; }
Shape keys(const ModelConfig& c) { return {kv_rows(c), c.hidden_size}; }

// Qwen3.5-MoE and Qwen3.6-MoE: transformers' qwen3_5_moe, its published wrapper, and mlx-lm's form.
constexpr std::array<std::string_view, 2> kQwen35Types{"qwen3_5_moe", "qwen3_5_moe_text"};

constexpr std::array<PrefixRule, 5> kQwen35Prefixes{{
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.lm_head", "lm_head"},
    {"model.", "model."},
    {"lm_head", "lm_head"},
}};

constexpr std::array<std::string_view, 9> kQwen35Skipped{"model.visual.",
                                                         "visual.",
                                                         "vision_tower.",
                                                         "model.vision_tower.",
                                                         "mtp.",
                                                         "model.mtp.",
                                                         "language_model.mtp.",
                                                         "language_model.model.mtp.",
                                                         "model.language_model.mtp."};

constexpr LayerScope kModel = LayerScope::kModel;
constexpr LayerScope kEvery = LayerScope::kEveryLayer;
constexpr LayerScope kLinear = LayerScope::kLinearAttention;
constexpr LayerScope kFull = LayerScope::kFullAttention;

const std::array<ResidentRule, 25> kQwen35Residents{{
    {"model.embed_tokens", "token_embd.weight", kModel, Rounding::kAsAsked, true, vocabulary},
    {"model.norm", "output_norm.weight", kModel, Rounding::kNever, true, hidden},
    {"lm_head", "output.weight", kModel, Rounding::kAsAsked, true, vocabulary},

    {"input_layernorm", "attn_norm.weight", kEvery, Rounding::kNever, true, hidden},
    {"post_attention_layernorm", "post_attention_norm.weight", kEvery, Rounding::kNever, true,
     hidden},
    {"mlp.gate", "ffn_gate_inp.weight", kEvery, Rounding::kAtLeast8, true,
     [](const ModelConfig& c) {
       return Shape{c.num_experts, c.hidden_size};
     }},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp.weight", kEvery, Rounding::kAtLeast8, true,
     [](const ModelConfig& c) {
       return Shape{1, c.hidden_size};
     }},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp.weight", kEvery, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{c.shared_expert_width, c.hidden_size};
     }},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp.weight", kEvery, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{c.shared_expert_width, c.hidden_size};
     }},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp.weight", kEvery, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{c.hidden_size, c.shared_expert_width};
     }},

    {"linear_attn.in_proj_qkv", "attn_qkv.weight", kLinear, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{2 * key_rows(c) + value_rows(c), c.hidden_size};
     }},
    {"linear_attn.in_proj_z", "attn_gate.weight", kLinear, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{value_rows(c), c.hidden_size};
     }},
    {"linear_attn.in_proj_b", "ssm_beta.weight", kLinear, Rounding::kAsAsked, true,
     value_heads_by_hidden},
    {"linear_attn.in_proj_a", "ssm_alpha.weight", kLinear, Rounding::kAsAsked, true,
     value_heads_by_hidden},
    {"linear_attn.conv1d", "ssm_conv1d.weight", kLinear, Rounding::kNever, true,
     [](const ModelConfig& c) {
       return Shape{2 * key_rows(c) + value_rows(c), 1, c.linear_conv_taps};
     }},
    {"linear_attn.A_log", "ssm_a", kLinear, Rounding::kNever, false, value_heads},
    {"linear_attn.dt_bias", "ssm_dt.bias", kLinear, Rounding::kNever, false, value_heads},
    {"linear_attn.norm", "ssm_norm.weight", kLinear, Rounding::kNever, true,
     [](const ModelConfig& c) { return Shape{c.linear_value_dim}; }},
    {"linear_attn.out_proj", "ssm_out.weight", kLinear, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{c.hidden_size, value_rows(c)};
     }},

    {"self_attn.q_proj", "attn_q.weight", kFull, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{2 * query_rows(c), c.hidden_size};
     }},
    {"self_attn.k_proj", "attn_k.weight", kFull, Rounding::kAsAsked, true, keys},
    {"self_attn.v_proj", "attn_v.weight", kFull, Rounding::kAsAsked, true, keys},
    {"self_attn.o_proj", "attn_output.weight", kFull, Rounding::kAsAsked, true,
     [](const ModelConfig& c) {
       return Shape{c.hidden_size, query_rows(c)};
     }},
    {"self_attn.q_norm", "attn_q_norm.weight", kFull, Rounding::kNever, true, head},
    {"self_attn.k_norm", "attn_k_norm.weight", kFull, Rounding::kNever, true, head},
}};

// Qwen3-Next: the same but for two projections of GatedDeltaNet, of which each holds two of the
// others, K head by K head: [q, k, v of its V heads, z of these] and [b, a of its V heads].
constexpr std::array<std::string_view, 1> kQwen3NextTypes{"qwen3_next"};

std::uint64_t values_of_key(const ModelConfig& c) {
  return c.linear_value_heads / c.linear_key_heads * std::uint64_t{c.linear_value_dim};
}
std::uint64_t qkvz_of_key(const ModelConfig& c) {
  return 2 * std::uint64_t{c.linear_key_dim} + 2 * values_of_key(c);
}

RowRuns qkv_rows(const ModelConfig& c) {
  const std::uint64_t dk = c.linear_key_dim;
  const std::uint64_t heads = c.linear_key_heads;
  return {{0, dk, qkvz_of_key(c), heads},
          {dk, dk, qkvz_of_key(c), heads},
          {2 * dk, values_of_key(c), qkvz_of_key(c), heads}};
}
RowRuns z_rows(const ModelConfig& c) {
  return {{2 * std::uint64_t{c.linear_key_dim} + values_of_key(c), values_of_key(c), qkvz_of_key(c),
           c.linear_key_heads}};
}
RowRuns b_rows(const ModelConfig& c) {
  const std::uint64_t ratio = c.linear_value_heads / c.linear_key_heads;
  return {{0, ratio, 2 * ratio, c.linear_key_heads}};
}
RowRuns a_rows(const ModelConfig& c) {
  const std::uint64_t ratio = c.linear_value_heads / c.linear_key_heads;
  return {{ratio, ratio, 2 * ratio, c.linear_key_heads}};
}

const std::array<FusedRule, 2> kQwen3NextFused{{
    {"linear_attn.in_proj_qkvz",
     "ssm_in.weight",
     false,
     [](const ModelConfig& c) {
       return Shape{c.linear_key_heads * qkvz_of_key(c), c.hidden_size};
     },
     {{{"linear_attn.in_proj_qkv", qkv_rows}, {"linear_attn.in_proj_z", z_rows}}}},
    {"linear_attn.in_proj_ba",
     "ssm_ba.weight",
     true,
     [](const ModelConfig& c) {
       return Shape{2 * std::uint64_t{c.linear_value_heads}, c.hidden_size};
     },
     {{{"linear_attn.in_proj_b", b_rows}, {"linear_attn.in_proj_a", a_rows}}}},
}};

const ArchitectureNames kQwen3Next{
    .model_types = kQwen3NextTypes,
    .text_model_type = "qwen3_next",
    .model_class = "Qwen3NextForCausalLM",
    .gguf_architecture = "qwen3next",
    .gguf_tiles_v_heads = false,
    .prefixes = kQwen35Prefixes,
    .skipped = kQwen35Skipped,
    .residents = kQwen35Residents,
    .fused = kQwen3NextFused,
    .output_head = "lm_head",
    .conv1d = "linear_attn.conv1d",
};

const ArchitectureNames kQwen35{
    .model_types = kQwen35Types,
    .text_model_type = "qwen3_5_moe_text",
    .model_class = "Qwen3_5MoeForCausalLM",
    .gguf_architecture = "qwen35moe",
    .gguf_tiles_v_heads = true,
    .prefixes = kQwen35Prefixes,
    .skipped = kQwen35Skipped,
    .residents = kQwen35Residents,
    .fused = {},
    .output_head = "lm_head",
    .conv1d = "linear_attn.conv1d",
};

const std::array<const ArchitectureNames*, 2> kArchitectures{&kQwen35, &kQwen3Next};

// Removes a decimal number without leading zeros and the dot behind it.
std::optional<std::uint32_t> take_index(std::string_view& text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 6) return std::nullopt;
  if (dot > 1 && text[0] == '0') return std::nullopt;
  std::uint32_t value = 0;
  for (char c : text.substr(0, dot)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  text.remove_prefix(dot + 1);
  return value;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Removes ".weight", ".scales" or ".biases"; nullopt when there is none.
std::optional<TensorPart> take_part(std::string_view& text) {
  constexpr std::array<std::pair<std::string_view, TensorPart>, 3> kSuffixes{{
      {".weight", TensorPart::kWeight},
      {".scales", TensorPart::kScales},
      {".biases", TensorPart::kBiases},
  }};
  for (const auto& [suffix, part] : kSuffixes) {
    if (!text.ends_with(suffix)) continue;
    text.remove_suffix(suffix.size());
    return part;
  }
  return std::nullopt;
}

std::optional<ExpertMatrix> expert_matrix(std::string_view name) {
  if (name == "gate_proj") return ExpertMatrix::kGate;
  if (name == "up_proj") return ExpertMatrix::kUp;
  if (name == "down_proj") return ExpertMatrix::kDown;
  if (name == "gate_up_proj") return ExpertMatrix::kGateUp;
  return std::nullopt;
}

// By ExpertMatrix.
constexpr std::array<std::string_view, kExpertMatrices> kGgufExperts{
    "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
    "ffn_gate_up_exps.weight"};

std::optional<ExpertMatrix> gguf_expert_matrix(std::string_view name) {
  const auto* const at = std::find(kGgufExperts.begin(), kGgufExperts.end(), name);
  if (at == kGgufExperts.end()) return std::nullopt;
  return static_cast<ExpertMatrix>(at - kGgufExperts.begin());
}

std::string in_gguf_block(std::uint32_t layer, std::string_view name) {
  return "blk." + std::to_string(layer) + "." + std::string(name);
}

// `rest`: what follows "model.layers.N.". True when it names a tensor of routed experts.
bool classify_expert(std::string_view rest, TensorName& out) {
  bool stacked = take_prefix(rest, "mlp.switch_mlp.");
  if (!stacked) {
    if (!take_prefix(rest, "mlp.experts.")) return false;
    out.expert = take_index(rest);
    stacked = !out.expert.has_value();
  }
  const auto part = take_part(rest);
  // transformers keeps its fused experts as bare parameters.
  if (!part.has_value() && !stacked) return false;
  const auto matrix = expert_matrix(rest);
  if (!matrix.has_value()) return false;
  if (*matrix == ExpertMatrix::kGateUp && !stacked) return false;
  out.part = part.value_or(TensorPart::kWeight);
  out.matrix = *matrix;
  out.role = TensorRole::kExpert;
  return true;
}

bool classify_resident(const ArchitectureNames& names, std::string_view name, bool in_layer,
                       TensorName& out) {
  std::string_view stem = name;
  const auto part = take_part(stem);
  for (const ResidentRule& rule : names.residents) {
    if ((rule.scope != LayerScope::kModel) != in_layer) continue;
    if (rule.has_weight_suffix ? (stem != rule.name || !part.has_value()) : name != rule.name) {
      continue;
    }
    out.role = TensorRole::kResident;
    out.rule = &rule;
    out.part = rule.has_weight_suffix ? *part : TensorPart::kWeight;
    return true;
  }
  for (const FusedRule& rule : names.fused) {
    if (!in_layer || stem != rule.name || !part.has_value()) continue;
    out.role = TensorRole::kFused;
    out.fused = &rule;
    out.part = *part;
    return true;
  }
  return false;
}

}  // namespace

const ArchitectureNames* find_gguf_architecture(std::string_view name) {
  for (const ArchitectureNames* names : kArchitectures) {
    if (names->gguf_architecture == name) return names;
  }
  return nullptr;
}

std::string supported_gguf_architectures() {
  std::string list;
  for (const ArchitectureNames* names : kArchitectures) {
    list += (list.empty() ? "" : ", ") + std::string(names->gguf_architecture);
  }
  return list;
}

const ArchitectureNames* find_architecture(std::string_view model_type) {
  for (const ArchitectureNames* names : kArchitectures) {
    const auto& types = names->model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return names;
  }
  return nullptr;
}

std::optional<std::string> canonical_name(const ArchitectureNames& names,
                                          std::string_view source_name) {
  for (const PrefixRule& rule : names.prefixes) {
    if (!source_name.starts_with(rule.source)) continue;
    return std::string(rule.canonical) + std::string(source_name.substr(rule.source.size()));
  }
  return std::nullopt;
}

// A block that predicts further tokens: a layer with attention, and what joins it to the trunk.
static bool is_of_prediction_block(const ArchitectureNames& names, std::string_view rest) {
  constexpr std::array<std::string_view, 6> kJoints{"nextn.eh_proj.weight",
                                                    "nextn.enorm.weight",
                                                    "nextn.hnorm.weight",
                                                    "nextn.shared_head_norm.weight",
                                                    "nextn.shared_head_head.weight",
                                                    "nextn.embed_tokens.weight"};
  const auto has_name = [&](const ResidentRule& rule) {
    return rule.scope != LayerScope::kModel && rule.gguf_name == rest;
  };
  return std::find(kJoints.begin(), kJoints.end(), rest) != kJoints.end() ||
         gguf_expert_matrix(rest).has_value() ||
         std::any_of(names.residents.begin(), names.residents.end(), has_name);
}

TensorName classify_gguf_tensor(const ArchitectureNames& names, std::string_view name,
                                std::uint32_t num_layers) {
  TensorName out;
  std::string_view rest = name;
  const bool in_layer = take_prefix(rest, "blk.");
  if (in_layer) {
    const auto layer = take_index(rest);
    if (!layer.has_value()) return out;
    out.layer = *layer;
    if (*layer >= num_layers) {
      out.role = is_of_prediction_block(names, rest) ? TensorRole::kSkipped : TensorRole::kUnknown;
      return out;
    }
    if (const auto matrix = gguf_expert_matrix(rest); matrix.has_value()) {
      out.role = TensorRole::kExpert;
      out.matrix = *matrix;
      return out;
    }
  }
  for (const ResidentRule& rule : names.residents) {
    if (rule.gguf_name != rest || (rule.scope != LayerScope::kModel) != in_layer) continue;
    out.role = TensorRole::kResident;
    out.rule = &rule;
    out.module = resident_module(rule, out.layer);
    return out;
  }
  for (const FusedRule& rule : names.fused) {
    if (!in_layer || rule.gguf_name != rest) continue;
    out.role = TensorRole::kFused;
    out.fused = &rule;
    return out;
  }
  return TensorName{};
}

std::array<TensorName, 2> split_fused(const ArchitectureNames& names, const TensorName& fused) {
  std::array<TensorName, 2> parts{fused, fused};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const FusedPart& part = fused.fused->parts[i];
    const auto rule = std::find_if(names.residents.begin(), names.residents.end(),
                                   [&](const ResidentRule& r) { return r.name == part.rule; });
    parts[i].role = TensorRole::kResident;
    parts[i].rule = &*rule;
    parts[i].fused_part = &part;
    parts[i].module = resident_module(*rule, fused.layer);
  }
  return parts;
}

std::string gguf_tensor_name(const ResidentRule& rule, std::uint32_t layer) {
  if (rule.scope == LayerScope::kModel) return std::string(rule.gguf_name);
  return in_gguf_block(layer, rule.gguf_name);
}

std::string gguf_tensor_name(const FusedRule& rule, std::uint32_t layer) {
  return in_gguf_block(layer, rule.gguf_name);
}

std::string gguf_tensor_name(ExpertMatrix matrix, std::uint32_t layer) {
  return in_gguf_block(layer, kGgufExperts[static_cast<std::size_t>(matrix)]);
}

TensorName classify_tensor(const ArchitectureNames& names, std::string_view source_name) {
  TensorName out;
  for (std::string_view prefix : names.skipped) {
    if (!source_name.starts_with(prefix)) continue;
    out.role = TensorRole::kSkipped;
    return out;
  }
  const auto canonical = canonical_name(names, source_name);
  if (!canonical.has_value()) return out;
  std::string_view rest = *canonical;
  bool in_layer = false;
  if (take_prefix(rest, "model.layers.")) {
    const auto layer = take_index(rest);
    if (!layer.has_value()) return out;
    out.layer = *layer;
    in_layer = true;
  }
  const bool known =
      (in_layer && classify_expert(rest, out)) || classify_resident(names, rest, in_layer, out);
  if (!known) return TensorName{};
  out.module = *canonical;
  if (out.rule == nullptr || out.rule->has_weight_suffix) {
    std::string_view stem = out.module;
    (void)take_part(stem);
    out.module.resize(stem.size());
  }
  return out;
}

std::string resident_module(const ResidentRule& rule, std::uint32_t layer) {
  if (rule.scope == LayerScope::kModel) return std::string(rule.name);
  return "model.layers." + std::to_string(layer) + "." + std::string(rule.name);
}

bool applies_to_layer(const ResidentRule& rule, const ModelConfig& config, std::uint32_t layer) {
  switch (rule.scope) {
    case LayerScope::kModel:
      return false;
    case LayerScope::kEveryLayer:
      return true;
    case LayerScope::kLinearAttention:
      return config.layer_types[layer] == LayerType::kLinearAttention;
    default:
      return config.layer_types[layer] == LayerType::kFullAttention;
  }
}

}  // namespace moepack

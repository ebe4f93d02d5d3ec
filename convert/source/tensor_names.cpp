#include "convert/source/tensor_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "convert/source/source_encoding.h"
#include "convert/source/split_heads.h"

namespace moepack {
namespace {

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

// Which of `names` it is; they are in the order of ExpertMatrix.
std::optional<ExpertMatrix> expert_matrix(
    const std::array<std::string_view, kExpertMatrices>& names, std::string_view name) {
  const auto* const at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<ExpertMatrix>(at - names.begin());
}

std::string in_gguf_block(std::uint32_t layer, std::string_view name) {
  return "blk." + std::to_string(layer) + "." + std::string(name);
}

// `suffix`: behind the name of the module; none of a bare parameter, which is its module's codes.
void take_role(TensorRole role, const std::optional<SourceSuffix>& suffix, TensorName& out) {
  const auto component = suffix.has_value() ? suffix->component : Component::kCodes;
  out.role = component.has_value() ? role : TensorRole::kUnused;
  out.part = component.value_or(Component::kCodes);
}

// `rest`: what follows "model.layers.N.". True when it names a tensor of routed experts.
bool classify_expert(const ExpertNames& names, std::string_view rest, TensorName& out) {
  const bool is_stacked_form = take_prefix(rest, names.stacked);
  bool stacked = is_stacked_form;
  if (!stacked) {
    if (!take_prefix(rest, names.folder)) return false;
    out.expert = take_index(rest);
    stacked = !out.expert.has_value();
  }
  const auto suffix = take_source_suffix(rest);
  // transformers keeps its fused experts as bare parameters.
  if (!suffix.has_value() && !stacked) return false;
  const auto matrix =
      expert_matrix(is_stacked_form ? names.stacked_matrices : names.matrices, rest);
  if (!matrix.has_value()) return false;
  if (*matrix == ExpertMatrix::kGateUp && !stacked) return false;
  out.matrix = *matrix;
  take_role(TensorRole::kExpert, suffix, out);
  return true;
}

bool classify_resident(const Architecture& names, std::string_view name, bool in_layer,
                       TensorName& out) {
  std::string_view stem = name;
  const auto suffix = take_source_suffix(stem);
  for (const ResidentRule& rule : names.residents) {
    if ((rule.scope != LayerScope::kModel) != in_layer) continue;
    if (rule.has_weight_suffix ? (stem != rule.name || !suffix.has_value()) : name != rule.name) {
      continue;
    }
    out.rule = &rule;
    take_role(TensorRole::kResident, rule.has_weight_suffix ? suffix : std::nullopt, out);
    return true;
  }
  for (const FusedRule& rule : names.fused) {
    const bool fits =
        rule.has_weight_suffix ? stem == rule.name && suffix.has_value() : name == rule.name;
    if (!in_layer || !fits) continue;
    out.fused = &rule;
    take_role(TensorRole::kFused, rule.has_weight_suffix ? suffix : std::nullopt, out);
    return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> canonical_name(const Architecture& names, std::string_view source_name) {
  for (const PrefixRule& rule : names.prefixes) {
    if (!source_name.starts_with(rule.source)) continue;
    return std::string(rule.canonical) + std::string(source_name.substr(rule.source.size()));
  }
  return std::nullopt;
}

// A block that predicts further tokens: a layer with attention, and what joins it to the trunk.
static bool is_of_prediction_block(const Architecture& names, std::string_view rest) {
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
         expert_matrix(names.experts->gguf, rest).has_value() ||
         (find_rule(names, ModuleRole::kKeyValueUp) != nullptr && split_head_rows(rest)) ||
         std::any_of(names.residents.begin(), names.residents.end(), has_name);
}

TensorName classify_gguf_tensor(const Architecture& names, std::string_view name,
                                std::uint32_t num_layers) {
  TensorName out;
  std::string_view rest = name;
  const bool in_layer = take_prefix(rest, "blk.");
  if (in_layer) {
    const auto layer = take_index(rest);
    if (!layer.has_value()) return out;
    out.layer = *layer;
    if (*layer >= num_layers) {
      out.role = is_of_prediction_block(names, rest) ? TensorRole::kPredicts : TensorRole::kUnknown;
      return out;
    }
    if (const auto matrix = expert_matrix(names.experts->gguf, rest); matrix.has_value()) {
      out.role = TensorRole::kExpert;
      out.matrix = *matrix;
      return out;
    }
  }
  const ResidentRule* const up = find_rule(names, ModuleRole::kKeyValueUp);
  if (in_layer && up != nullptr && split_head_rows(rest).has_value()) {
    out.role = TensorRole::kResident;
    out.rule = up;
    out.module = resident_module(*up, out.layer);
    return out;
  }
  for (const ResidentRule& rule : names.residents) {
    if (rule.gguf_name != rest || (rule.scope != LayerScope::kModel) != in_layer) continue;
    out.role = TensorRole::kResident;
    out.rule = &rule;
    out.module = resident_module(rule, out.layer);
    return out;
  }
  for (const FusedRule& rule : names.fused) {
    if (!in_layer || rule.gguf_name != rest || rest.empty()) continue;
    out.role = TensorRole::kFused;
    out.fused = &rule;
    return out;
  }
  return TensorName{};
}

std::array<TensorName, 2> split_fused(const Architecture& names, const TensorName& fused) {
  std::array<TensorName, 2> parts{fused, fused};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const FusedPart& part = fused.fused->parts[i];
    const ResidentRule* const rule = find_rule(names, part.role);
    parts[i].role = TensorRole::kResident;
    parts[i].rule = rule;
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

std::string gguf_tensor_name(const Architecture& names, ExpertMatrix matrix, std::uint32_t layer) {
  return in_gguf_block(layer, names.experts->gguf[static_cast<std::size_t>(matrix)]);
}

TensorName classify_tensor(const Architecture& names, std::string_view source_name,
                           const ModelConfig& config) {
  const auto canonical = canonical_name(names, source_name);
  std::string_view rest = canonical.has_value() ? std::string_view(*canonical) : "";
  const bool in_layer = take_prefix(rest, "model.layers.");
  const auto layer = in_layer ? take_index(rest) : std::nullopt;
  const bool predicts = layer.has_value() && *layer >= config.num_layers &&
                        *layer - config.num_layers < config.prediction_layers;
  if (!predicts) return classify_tensor(names, source_name);
  TensorName out;
  out.role = TensorRole::kPredicts;
  return out;
}

TensorName classify_tensor(const Architecture& names, std::string_view source_name) {
  TensorName out;
  for (const auto& [prefixes, role] : {std::pair{names.skipped, TensorRole::kSkipped},
                                       std::pair{names.prediction, TensorRole::kPredicts}}) {
    for (std::string_view prefix : prefixes) {
      if (!source_name.starts_with(prefix)) continue;
      out.role = role;
      return out;
    }
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
  const bool known = (in_layer && classify_expert(*names.experts, rest, out)) ||
                     classify_resident(names, rest, in_layer, out);
  if (!known) return TensorName{};
  out.module = *canonical;
  if (out.rule == nullptr || out.rule->has_weight_suffix) {
    std::string_view stem = out.module;
    (void)take_source_suffix(stem);
    out.module.resize(stem.size());
  }
  return out;
}

}  // namespace moepack

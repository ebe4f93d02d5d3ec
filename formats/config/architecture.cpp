#include "formats/config/architecture.h"

#include <algorithm>

#include "formats/base/json.h"
#include "formats/config/families.h"

namespace moepack {

std::span<const Architecture* const> architectures() { return kFamilies; }

const Architecture* find_architecture(std::string_view model_type) {
  for (const Architecture* family : kFamilies) {
    if (model_type == family->wrapper_type || model_type == family->text_model_type) return family;
  }
  return nullptr;
}

const Architecture* find_gguf_architecture(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const Architecture* family : kFamilies) {
    if (family->gguf_architecture == name) return family;
  }
  return nullptr;
}

std::string supported_gguf_architectures() {
  std::string list;
  for (const Architecture* family : kFamilies) {
    if (family->gguf_architecture.empty()) continue;
    list += (list.empty() ? "" : ", ") + std::string(family->gguf_architecture);
  }
  return list;
}

std::string exported_gguf_architectures() {
  std::string list;
  for (const Architecture* family : kFamilies) {
    if (!family->exports_gguf) continue;
    list += (list.empty() ? "" : ", ") + std::string(family->gguf_architecture);
  }
  return list;
}

Result<const Architecture*> architecture_of(const ModelConfig& config) {
  const Architecture* found = find_architecture(config.model_type);
  if (found != nullptr) return found;
  return unsupported(Where{},
                     "model type \"" + printable(config.model_type, 64) + "\" is not supported",
                     "supported are " + supported_model_types());
}

const ResidentRule* find_rule(const Architecture& architecture, ModuleRole role) {
  for (const ResidentRule& rule : architecture.residents) {
    if (rule.role == role) return &rule;
  }
  return nullptr;
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
      return config.layer_type(layer) == LayerType::kLinearAttention;
    case LayerScope::kFullAttention:
      return config.layer_type(layer) == LayerType::kFullAttention;
    case LayerScope::kLatentAttention:
      return config.layer_type(layer) == LayerType::kLatentAttention;
    case LayerScope::kExperts:
      return has_experts(config.layers[layer]);
    case LayerScope::kDense:
      break;
  }
  return !has_experts(config.layers[layer]);
}

std::vector<std::uint64_t> module_shape(const ResidentRule& rule, const ModelConfig& config,
                                        std::uint32_t layer) {
  return rule.layer_shape == nullptr ? rule.shape(config) : rule.layer_shape(config, layer);
}

bool exists_in(const ResidentRule& rule, const ModelConfig& config, std::uint32_t layer) {
  const std::vector<std::uint64_t> shape = module_shape(rule, config, layer);
  return std::find(shape.begin(), shape.end(), 0U) == shape.end();
}

bool follows_norm_convention(ModuleRole role) {
  return role == ModuleRole::kFinalNorm || role == ModuleRole::kInputNorm ||
         role == ModuleRole::kPostNorm || role == ModuleRole::kQueryNorm ||
         role == ModuleRole::kKeyNorm;
}

std::optional<VHeadPlace> v_head_place(const ResidentRule& rule, const ModelConfig& config) {
  const std::uint64_t keys = 2 * std::uint64_t{config.linear_key_heads} * config.linear_key_dim;
  const std::uint64_t unit = config.linear_value_dim;
  switch (rule.v_heads) {
    case VHeadRule::kNone:
      break;
    case VHeadRule::kRows:
      return VHeadPlace{.unit = unit};
    case VHeadRule::kRowsBehindKeys:
      return VHeadPlace{.first = keys, .unit = unit};
    case VHeadRule::kScalars:
      return VHeadPlace{.unit = 1};
    case VHeadRule::kColumns:
      return VHeadPlace{.in_columns = true, .unit = unit};
  }
  return std::nullopt;
}

}  // namespace moepack

// MLX's quantization block. Source: mlx-lm's loader and mlx.nn.quantize: the block's numbers hold
// for every quantized module but those that it names, and an object under a module's name stands
// alone (what it leaves out is the default of its mode, not the block's number).
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/config/config_parts.h"

namespace moepack {
namespace {

constexpr std::uint32_t kAffineDefaultBits = 4;
constexpr std::uint32_t kAffineDefaultGroup = 64;

bool is_format_key(std::string_view key) {
  return key == "group_size" || key == "bits" || key == "mode";
}

// The three format keys of a block or of a module's entry.
Result<WeightFormat> read_format(const ConfigReader& block) {
  MOE_RETURN_IF_ERROR(block.require_text("mode", "affine"));
  std::uint32_t bits = 0;
  std::uint32_t group = 0;
  MOE_RETURN_IF_ERROR(block.dimension("bits", kAffineDefaultBits, bits));
  MOE_RETURN_IF_ERROR(block.dimension("group_size", kAffineDefaultGroup, group));
  const auto id = affine_qformat(bits);
  if (!id.has_value()) return block.unsupported_value("bits", std::to_string(bits));
  if (!is_valid_group_size(group)) {
    return block.unsupported_value("group_size", std::to_string(group));
  }
  return WeightFormat{.id = *id, .group_size = group};
}

Result<QuantizationConfig> read_block(const ConfigReader& block) {
  // Every other method of the HuggingFace world names itself under one of these keys; MLX does not.
  for (std::string_view key : {"quant_method", "quant_algo"}) {
    MOE_RETURN_IF_ERROR(block.require_absent(key));
  }
  QuantizationConfig config;
  MOE_ASSIGN_OR_RETURN(config.default_format, read_format(block));
  for (const auto& [module, value] : block.json().items()) {
    if (is_format_key(module) || value.is_null() || value == true) continue;
    if (value == false) {
      config.overrides.push_back({module, std::nullopt});
      continue;
    }
    if (!value.is_object()) {
      return block.unsupported_value(module, ConfigReader::shown(value));
    }
    const ConfigReader entry = block.nested(module, value);
    for (const auto& [key, unused] : value.items()) {
      if (!is_format_key(key)) return entry.unsupported_value(key, "in a module's format");
    }
    MOE_ASSIGN_OR_RETURN(const WeightFormat format, read_format(entry));
    config.overrides.push_back({module, format});
  }
  std::sort(config.overrides.begin(), config.overrides.end(),
            [](const auto& a, const auto& b) { return a.module < b.module; });
  return config;
}

}  // namespace

std::optional<WeightFormat> QuantizationConfig::format_of(std::string_view module) const {
  const auto at = std::lower_bound(
      overrides.begin(), overrides.end(), module,
      [](const Entry& entry, std::string_view wanted) { return entry.module < wanted; });
  return at != overrides.end() && at->module == module ? at->format : default_format;
}

Result<std::optional<QuantizationConfig>> read_quantization(const ConfigReader& outer,
                                                            const ConfigReader* text) {
  std::optional<QuantizationConfig> agreed;
  for (const ConfigReader* object : {&outer, text}) {
    if (object == nullptr) continue;
    for (std::string_view key : {"quantization", "quantization_config"}) {
      MOE_ASSIGN_OR_RETURN(const auto block, object->object(key));
      if (!block.has_value()) continue;
      MOE_ASSIGN_OR_RETURN(QuantizationConfig config, read_block(*block));
      if (agreed.has_value() && !(*agreed == config)) {
        return object->error(key, "differs from the other quantization block of the file");
      }
      agreed = std::move(config);
    }
  }
  return agreed;
}

}  // namespace moepack

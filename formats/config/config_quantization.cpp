// What config.json says about quantization: MLX's block; quantization_methods.cpp reads those of
// methods that name themselves.
//
// MLX's. Source: mlx-lm's loader and mlx.nn.quantize: the block's numbers hold
// for every quantized module but those that it names, and an object under a module's name stands
// alone (what it leaves out is the default of its mode, not the block's number).
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "formats/config/config_parts.h"
#include "formats/config/quantization_methods.h"

namespace moepack {
namespace {

struct MlxMode {
  std::string_view name;
  QFormatId id;  // of the modes but affine, which have one width and group
  std::uint32_t bits;
  std::uint32_t group;
};

constexpr std::array<MlxMode, 4> kMlxModes{{{"affine", QFormatId::kQ4, 4, 64},
                                            {"mxfp4", QFormatId::kMxfp4, 4, 32},
                                            {"nvfp4", QFormatId::kNvfp4, 4, 16},
                                            {"mxfp8", QFormatId::kMxfp8, 8, 32}}};

bool is_format_key(std::string_view key) {
  return key == "group_size" || key == "bits" || key == "mode" || key == "global_scale";
}

Result<const MlxMode*> read_mode(const ConfigReader& block) {
  MOE_ASSIGN_OR_RETURN(const auto name, block.optional_text("mode"));
  for (const MlxMode& mode : kMlxModes) {
    if (name.value_or("affine") == mode.name) return &mode;
  }
  return block.unsupported_value("mode", "\"" + printable(*name, 64) + "\"");
}

// The format keys of a block or of a module's entry.
Result<WeightFormat> read_format(const ConfigReader& block) {
  MOE_ASSIGN_OR_RETURN(const MlxMode* const mode, read_mode(block));
  std::uint32_t bits = 0;
  std::uint32_t group = 0;
  MOE_RETURN_IF_ERROR(block.dimension("bits", mode->bits, bits));
  MOE_RETURN_IF_ERROR(block.dimension("group_size", mode->group, group));
  MOE_ASSIGN_OR_RETURN(const auto has_factor, block.optional_flag("global_scale"));
  const bool is_affine_mode = mode == &kMlxModes.front();
  if (has_factor.value_or(false) && mode->id != QFormatId::kNvfp4) {
    return block.unsupported_value("global_scale", "in the mode " + std::string(mode->name));
  }
  const auto id = is_affine_mode ? affine_qformat(bits) : std::optional(mode->id);
  if (!id.has_value() || (!is_affine_mode && bits != mode->bits)) {
    return block.unsupported_value("bits", std::to_string(bits));
  }
  if (is_affine_mode ? !is_valid_group_size(group) : group != mode->group) {
    return block.unsupported_value("group_size", std::to_string(group));
  }
  if (is_affine_mode) return WeightFormat{.id = *id, .group_size = group};
  return WeightFormat{.id = has_factor.value_or(false) ? QFormatId::kNvfp4Scaled : *id};
}

Result<QuantizationConfig> read_block(const ConfigReader& block) {
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

// The method that the block names; "" for MLX's, which names none. ModelOpt's may name its
// algorithm alone.
Result<std::string> method_of_block(const ConfigReader& block) {
  MOE_ASSIGN_OR_RETURN(const auto method, block.optional_text("quant_method"));
  if (method.has_value()) return *method;
  return std::string(block.has("quant_algo") ? "modelopt" : "");
}

}  // namespace

std::optional<WeightFormat> QuantizationConfig::format_of(std::string_view module) const {
  const auto at = std::lower_bound(
      overrides.begin(), overrides.end(), module,
      [](const Entry& entry, std::string_view wanted) { return entry.module < wanted; });
  return at != overrides.end() && at->module == module ? at->format : default_format;
}

Status read_quantization(const ConfigReader& outer, const ConfigReader* text,
                         ParsedConfig& parsed) {
  bool is_first = true;
  for (const ConfigReader* object : {&outer, text}) {
    if (object == nullptr) continue;
    for (std::string_view key : {"quantization", "quantization_config"}) {
      MOE_ASSIGN_OR_RETURN(const auto block, object->object(key));
      if (!block.has_value()) continue;
      std::optional<QuantizationConfig> mlx;
      SourceQuantization named;
      MOE_ASSIGN_OR_RETURN(const std::string method, method_of_block(*block));
      if (method.empty()) {
        MOE_ASSIGN_OR_RETURN(mlx, read_block(*block));
      } else {
        MOE_ASSIGN_OR_RETURN(named, read_quantization_method(*block, method));
      }
      if (!is_first && (mlx != parsed.quantization || !(named == parsed.source_quantization))) {
        return object->error(key, "differs from the other quantization block of the file");
      }
      parsed.quantization = std::move(mlx);
      parsed.source_quantization = named;
      is_first = false;
    }
  }
  return Status::ok();
}

Status add_quantization_file(std::string_view text, const std::string& file, ParsedConfig& config) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, {.file = file}));
  if (!document.is_object()) {
    return corrupt({.file = file}, "is not a JSON object", "download it again");
  }
  const ConfigReader outer(document, "", file);
  MOE_ASSIGN_OR_RETURN(const auto block, outer.object("quantization"));
  if (!block.has_value()) return outer.error("quantization", "is missing");
  MOE_ASSIGN_OR_RETURN(const SourceQuantization named,
                       read_quantization_method(*block, "modelopt"));
  SourceQuantization& known = config.source_quantization;
  if (config.quantization.has_value() || (!known.method.empty() && !(known == named))) {
    return outer.error("quantization",
                       "is of ModelOpt, and config.json says that " +
                           (known.method.empty() ? std::string("MLX") : known.method) +
                           " quantized the model");
  }
  known = named;
  return Status::ok();
}

}  // namespace moepack

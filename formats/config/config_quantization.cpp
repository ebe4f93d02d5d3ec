// What config.json says about quantization: MLX's block, and those of methods that name themselves.
//
// MLX's. Source: mlx-lm's loader and mlx.nn.quantize: the block's numbers hold
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
  // ModelOpt names its method here.
  MOE_RETURN_IF_ERROR(block.require_absent("quant_algo"));
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

// Two numbers, rows and columns of a block.
Status read_block_size(const ConfigReader& block, std::string_view key, SourceQuantization& out) {
  const nlohmann::json* size = block.find(key);
  if (size == nullptr) return Status::ok();
  const auto is_length = [](const nlohmann::json& n) {
    return n.is_number_unsigned() && n.get<std::uint64_t>() - 1 < kMaxModelDimension;
  };
  if (!size->is_array() || size->size() != 2 || !is_length((*size)[0]) || !is_length((*size)[1])) {
    return block.error(key, "must hold two positive integers");
  }
  out.block_rows = (*size)[0].get<std::uint32_t>();
  out.block_cols = (*size)[1].get<std::uint32_t>();
  return Status::ok();
}

// DeepSeek's method. Source: transformers' FineGrainedFP8Config.
Status read_fp8(const ConfigReader& block, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto format, block.optional_text("fmt"));
  if (format.has_value() && *format != "e4m3" && *format != "float8_e4m3fn") {
    return block.unsupported_value("fmt", *format);
  }
  return read_block_size(block, "weight_block_size", out);
}

// The weights of one group of modules.
Status read_compressed_weights(const ConfigReader& weights, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto type, weights.optional_text("type"));
  std::uint32_t bits = 0;
  MOE_RETURN_IF_ERROR(weights.dimension("num_bits", 8, bits));
  const bool is_float = type == "float" && bits == 8;
  const bool is_integer = type.value_or("int") == "int" && (bits == 2 || bits == 4 || bits == 8);
  if (!is_float && !is_integer) {
    return weights.unsupported_value("num_bits",
                                     std::to_string(bits) + " of type " + type.value_or("int"));
  }
  return read_block_size(weights, "block_structure", out);
}

// Source: compressed-tensors' QuantizationConfig.
Status read_compressed_tensors(const ConfigReader& block, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto format, block.optional_text("format"));
  if (format != "pack-quantized" && format != "float-quantized") {
    return block.unsupported_value("format", format.value_or("nothing"));
  }
  MOE_ASSIGN_OR_RETURN(const auto groups, block.object("config_groups"));
  if (!groups.has_value()) return block.error("config_groups", "is missing");
  for (const auto& [name, value] : groups->json().items()) {
    if (!value.is_object()) return groups->error(name, "must be an object");
    const ConfigReader group = groups->nested(name, value);
    MOE_ASSIGN_OR_RETURN(const auto weights, group.object("weights"));
    if (!weights.has_value()) return group.error("weights", "is missing");
    SourceQuantization one{.method = out.method};
    MOE_RETURN_IF_ERROR(read_compressed_weights(*weights, one));
    if (out.block_rows != 0 && one.block_rows != 0 && !(one == out)) {
      return groups->unsupported_value(name, "a block of another size");
    }
    if (one.block_rows != 0) out = one;
  }
  return Status::ok();
}

Result<SourceQuantization> read_method(const ConfigReader& block, const std::string& method) {
  SourceQuantization out{.method = method};
  if (method == "fp8") {
    MOE_RETURN_IF_ERROR(read_fp8(block, out));
    return out;
  }
  if (method == "compressed-tensors") {
    MOE_RETURN_IF_ERROR(read_compressed_tensors(block, out));
    return out;
  }
  return block.unsupported_value("quant_method", method);
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
      std::optional<QuantizationConfig> affine;
      SourceQuantization named;
      MOE_ASSIGN_OR_RETURN(const auto method, block->optional_text("quant_method"));
      if (method.has_value()) {
        MOE_ASSIGN_OR_RETURN(named, read_method(*block, *method));
      } else {
        MOE_ASSIGN_OR_RETURN(affine, read_block(*block));
      }
      if (!is_first && (affine != parsed.quantization || !(named == parsed.source_quantization))) {
        return object->error(key, "differs from the other quantization block of the file");
      }
      parsed.quantization = std::move(affine);
      parsed.source_quantization = named;
      is_first = false;
    }
  }
  return Status::ok();
}

}  // namespace moepack

#include "formats/config/quantization_methods.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

namespace moepack {
namespace {

template <std::size_t Count>
bool is_one_of(const std::array<std::string_view, Count>& known, std::string_view value) {
  return std::find(known.begin(), known.end(), value) != known.end();
}

std::string in_quotes(std::string_view text) { return "\"" + printable(text, 64) + "\""; }

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

// A positive number, or -1, null or nothing for "all inputs of a row".
Status read_group_size(const ConfigReader& block, SourceQuantization& out) {
  const nlohmann::json* size = block.find("group_size");
  if (size == nullptr || *size == -1) return Status::ok();
  return block.dimension("group_size", 0, out.group_size);
}

// DeepSeek's method. Source: transformers' FineGrainedFP8Config.
Status read_fp8(const ConfigReader& block, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto format, block.optional_text("fmt"));
  if (format.has_value() && *format != "e4m3" && *format != "float8_e4m3fn") {
    return block.unsupported_value("fmt", *format);
  }
  return read_block_size(block, "weight_block_size", out);
}

// What the weights of one group of modules are packed as.
constexpr std::array<std::string_view, 6> kCompressedFormats{
    "pack-quantized",  "float-quantized",      "int-quantized",
    "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"};

// The weights of one group of modules.
Status read_compressed_weights(const ConfigReader& weights, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto type, weights.optional_text("type"));
  std::uint32_t bits = 0;
  MOE_RETURN_IF_ERROR(weights.dimension("num_bits", 8, bits));
  const std::string kind = type.value_or("int");
  const bool is_float = kind == "float" && (bits == 4 || bits == 8);
  const bool is_integer = kind == "int" && bits >= 2 && bits <= 8;
  if (!is_float && !is_integer) {
    return weights.unsupported_value("num_bits",
                                     std::to_string(bits) + " of type " + printable(kind, 64));
  }
  if (is_integer) out.code_widths |= 1U << bits;
  const nlohmann::json* dynamic = weights.find("dynamic");
  if (dynamic != nullptr && *dynamic != false) {
    return weights.unsupported_value("dynamic", ConfigReader::shown(*dynamic) + " for weights");
  }
  MOE_RETURN_IF_ERROR(read_group_size(weights, out));
  return read_block_size(weights, "block_structure", out);
}

Status read_compressed_group(const ConfigReader& group, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto format, group.optional_text("format"));
  if (format.has_value() && !is_one_of(kCompressedFormats, *format)) {
    return group.unsupported_value("format", in_quotes(*format));
  }
  MOE_ASSIGN_OR_RETURN(const auto weights, group.object("weights"));
  if (!weights.has_value()) return group.error("weights", "is missing");
  return read_compressed_weights(*weights, out);
}

// Source: compressed-tensors' QuantizationConfig.
Status read_compressed_tensors(const ConfigReader& block, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto format, block.optional_text("format"));
  if (!format.has_value()) return block.unsupported_value("format", "nothing");
  if (*format != "mixed-precision" && !is_one_of(kCompressedFormats, *format)) {
    return block.unsupported_value("format", in_quotes(*format));
  }
  MOE_ASSIGN_OR_RETURN(const auto sparsity, block.object("sparsity_config"));
  if (sparsity.has_value()) MOE_RETURN_IF_ERROR(sparsity->require_text("format", "dense"));
  MOE_ASSIGN_OR_RETURN(const auto groups, block.object("config_groups"));
  if (!groups.has_value()) return block.error("config_groups", "is missing");
  bool has_other_groups = false;
  for (const auto& [name, value] : groups->json().items()) {
    if (!value.is_object()) return groups->error(name, "must be an object");
    SourceQuantization one{.method = out.method};
    MOE_RETURN_IF_ERROR(read_compressed_group(groups->nested(name, value), one));
    if (out.block_rows != 0 && one.block_rows != 0 &&
        (out.block_rows != one.block_rows || out.block_cols != one.block_cols)) {
      return groups->unsupported_value(name, "a block of another size");
    }
    if (one.block_rows != 0) {
      out.block_rows = one.block_rows;
      out.block_cols = one.block_cols;
    }
    out.code_widths |= one.code_widths;
    has_other_groups |=
        out.group_size != 0 && one.group_size != 0 && out.group_size != one.group_size;
    out.group_size = std::max(out.group_size, one.group_size);
  }
  if (has_other_groups) out.group_size = 0;  // the shapes tell each module's
  return Status::ok();
}

Status add_gptq_width(const ConfigReader& block, std::uint32_t fallback, SourceQuantization& out) {
  std::uint32_t bits = 0;
  MOE_RETURN_IF_ERROR(block.dimension("bits", fallback, bits));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    return block.unsupported_value("bits", std::to_string(bits));
  }
  out.code_widths |= 1U << bits;
  return Status::ok();
}

// Modules that depart from the rest: {"+:REGEX": {"bits": 8, "sym": false}}. Where they may depart
// in symmetry or order, neither is known of any module.
Status read_gptq_rules(const ConfigReader& block, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto rules, block.object("dynamic"));
  if (!rules.has_value()) return Status::ok();
  for (const auto& [name, value] : rules->json().items()) {
    if (!value.is_object()) return rules->error(name, "must be an object");
    const ConfigReader rule = rules->nested(name, value);
    if (rule.has("bits")) MOE_RETURN_IF_ERROR(add_gptq_width(rule, 4, out));
    if (rule.has("sym")) out.symmetric = false;
    if (rule.has("desc_act")) out.any_order = true;
    if (rule.has("group_size")) return rule.unsupported_value("group_size", "of some modules");
  }
  return Status::ok();
}

// Source: AutoGPTQ's BaseQuantizeConfig, GPTQModel's QuantizeConfig.
Status read_gptq(const ConfigReader& block, SourceQuantization& out) {
  out.zeros_less_one = true;  // what files were before they had a version
  for (std::string_view key : {"checkpoint_format", "format"}) {
    MOE_ASSIGN_OR_RETURN(const auto format, block.optional_text(key));
    if (!format.has_value()) continue;
    if (*format != "gptq" && *format != "gptq_v2") {
      return block.unsupported_value(key, in_quotes(*format));
    }
    out.zeros_less_one = *format == "gptq";
  }
  MOE_RETURN_IF_ERROR(block.require_flag("is_marlin_format", false));
  MOE_RETURN_IF_ERROR(add_gptq_width(block, 4, out));
  MOE_RETURN_IF_ERROR(read_group_size(block, out));
  MOE_ASSIGN_OR_RETURN(const auto symmetric, block.optional_flag("sym"));
  MOE_ASSIGN_OR_RETURN(const auto any_order, block.optional_flag("desc_act"));
  out.symmetric = symmetric.value_or(false);
  out.any_order = any_order.value_or(false);
  return read_gptq_rules(block, out);
}

// Source: AutoAWQ's AwqConfig. Its other versions pack words in other orders.
Status read_awq(const ConfigReader& block, SourceQuantization& out) {
  MOE_ASSIGN_OR_RETURN(const auto version, block.optional_text("version"));
  if (version.has_value() && *version != "gemm" && *version != "GEMM") {
    return block.unsupported_value("version", in_quotes(*version));
  }
  std::uint32_t bits = 0;
  for (std::string_view key : {"bits", "w_bit"}) {
    MOE_RETURN_IF_ERROR(block.dimension(key, 4, bits));
    if (bits != 4) return block.unsupported_value(key, std::to_string(bits));
  }
  MOE_RETURN_IF_ERROR(block.require_flag("zero_point", true));
  out.code_widths = 1U << 4U;
  return read_group_size(block, out);
}

constexpr std::array<std::string_view, 2> kModelOptMethods{"NVFP4", "FP8"};

// The layers of a mixture, each with a method of its own.
Status check_mixed_layers(const ConfigReader& block) {
  MOE_ASSIGN_OR_RETURN(const auto layers, block.object("quantized_layers"));
  if (!layers.has_value()) return Status::ok();
  for (const auto& [name, value] : layers->json().items()) {
    if (!value.is_object()) return layers->error(name, "must be an object");
    const ConfigReader layer = layers->nested(name, value);
    MOE_ASSIGN_OR_RETURN(const auto method, layer.optional_text("quant_algo"));
    if (!method.has_value() || !is_one_of(kModelOptMethods, *method)) {
      return layer.unsupported_value("quant_algo", in_quotes(method.value_or("nothing")));
    }
  }
  return Status::ok();
}

// Source: NVIDIA ModelOpt's export of HuggingFace checkpoints.
Status read_modelopt(const ConfigReader& block, SourceQuantization& /*out*/) {
  MOE_ASSIGN_OR_RETURN(const auto method, block.optional_text("quant_algo"));
  if (!method.has_value()) return block.error("quant_algo", "is missing");
  if (*method != "MIXED_PRECISION" && !is_one_of(kModelOptMethods, *method)) {
    return block.unsupported_value("quant_algo", in_quotes(*method));
  }
  MOE_RETURN_IF_ERROR(check_mixed_layers(block));
  if (*method != "NVFP4") return Status::ok();
  std::uint32_t group = 0;
  MOE_RETURN_IF_ERROR(block.dimension("group_size", 16, group));
  if (group != 16) return block.unsupported_value("group_size", std::to_string(group));
  return Status::ok();
}

// OpenAI's, whose tensors say everything.
Status read_mxfp4(const ConfigReader& /*block*/, SourceQuantization& /*out*/) {
  return Status::ok();
}

struct Method {
  std::string_view name;
  Status (*read)(const ConfigReader& block, SourceQuantization& out);
};

constexpr std::array<Method, 6> kMethods{{{"fp8", read_fp8},
                                          {"compressed-tensors", read_compressed_tensors},
                                          {"gptq", read_gptq},
                                          {"awq", read_awq},
                                          {"mxfp4", read_mxfp4},
                                          {"modelopt", read_modelopt}}};

}  // namespace

Result<SourceQuantization> read_quantization_method(const ConfigReader& block,
                                                    const std::string& method) {
  for (const Method& known : kMethods) {
    if (known.name != method) continue;
    SourceQuantization out{.method = method};
    MOE_RETURN_IF_ERROR(known.read(block, out));
    return out;
  }
  return block.unsupported_value("quant_method", in_quotes(method));
}

}  // namespace moepack

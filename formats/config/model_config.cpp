#include "formats/config/model_config.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/config/architecture.h"
#include "formats/config/companion_files.h"
#include "formats/config/config_parts.h"

namespace moepack {
namespace {

Result<std::string> read_model_type(const ConfigReader& outer) {
  MOE_ASSIGN_OR_RETURN(const auto type, outer.optional_text("model_type"));
  if (type.has_value()) return *type;
  return outer.error("model_type", "is missing");
}

// A wrapper and its text model may both state it; then they must agree.
Status read_outer_tie(const ConfigReader& outer, const ConfigReader& text, ModelConfig& model) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  MOE_ASSIGN_OR_RETURN(const auto tied, outer.optional_flag(kKey));
  if (!tied.has_value()) return Status::ok();
  if (text.has(kKey) && model.tie_word_embeddings != *tied) {
    return outer.error(kKey, "is not what text_config says");
  }
  model.tie_word_embeddings = *tied;
  return Status::ok();
}

Status check_text_type(const ConfigReader& text, const Architecture& family) {
  MOE_ASSIGN_OR_RETURN(const auto type, text.optional_text("model_type"));
  if (!type.has_value() || *type == family.text_model_type) return Status::ok();
  return text.unsupported_value(
      "model_type", "\"" + printable(*type, 64) + "\" in a " + std::string(family.wrapper_type));
}

}  // namespace

std::uint32_t ModelConfig::layers_of(LayerType type) const {
  const auto is_meant = [&](const LayerSpec& layer) { return moepack::layer_type(layer) == type; };
  return static_cast<std::uint32_t>(std::count_if(layers.begin(), layers.end(), is_meant));
}

HeadSizes ModelConfig::heads_of(const FullAttentionSpec& spec) const {
  if (spec.own_heads.has_value()) return *spec.own_heads;
  return {.heads = num_heads,
          .kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .rotary_dim = rotary_dim,
          .rotated_pairs = rotary_dim / 2,
          .rope_theta = rope_theta};
}

std::vector<HeadSizes> ModelConfig::head_kinds() const {
  std::vector<HeadSizes> kinds;
  for (const LayerSpec& layer : layers) {
    const auto* full = std::get_if<FullAttentionSpec>(&layer.mixer);
    if (full == nullptr) continue;
    const HeadSizes heads = heads_of(*full);
    if (std::find(kinds.begin(), kinds.end(), heads) == kinds.end()) kinds.push_back(heads);
  }
  return kinds;
}

std::string supported_model_types() {
  std::string list;
  for (const Architecture* family : architectures()) {
    if (!list.empty()) list += ", ";
    list += family->wrapper_type;
    if (family->text_model_type != family->wrapper_type)
      list += ", " + std::string(family->text_model_type);
  }
  return list;
}

Result<ParsedConfig> parse_model_config(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, {.file = file}));
  if (!document.is_object()) {
    return corrupt({.file = file}, "is not a JSON object", "download config.json again");
  }
  const ConfigReader outer(document, "", file);
  MOE_ASSIGN_OR_RETURN(const std::string model_type, read_model_type(outer));
  const Architecture* family = find_architecture(model_type);
  if (family == nullptr) {
    return unsupported({.file = file},
                       "model_type \"" + printable(model_type, 64) + "\" is not supported",
                       "supported are " + supported_model_types());
  }

  ParsedConfig parsed;
  parsed.model.model_type = family->text_model_type;
  MOE_ASSIGN_OR_RETURN(const auto nested, outer.object("text_config"));
  const ConfigReader& body = nested.has_value() ? *nested : outer;
  if (nested.has_value()) MOE_RETURN_IF_ERROR(check_text_type(body, *family));
  MOE_RETURN_IF_ERROR(family->read_config(body, parsed.model));
  MOE_RETURN_IF_ERROR(read_eos_token_ids(outer, parsed.model));
  if (nested.has_value()) {
    MOE_RETURN_IF_ERROR(read_outer_tie(outer, body, parsed.model));
    MOE_RETURN_IF_ERROR(read_eos_token_ids(body, parsed.model));
  }
  MOE_RETURN_IF_ERROR(read_quantization(outer, nested.has_value() ? &*nested : nullptr, parsed));
  return parsed;
}

Result<ParsedConfig> parse_quantization(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, {.file = file}));
  if (!document.is_object()) {
    return corrupt({.file = file}, "is not a JSON object", "download config.json again");
  }
  const ConfigReader outer(document, "", file);
  MOE_ASSIGN_OR_RETURN(const auto nested, outer.object("text_config"));
  ParsedConfig parsed;
  MOE_RETURN_IF_ERROR(read_quantization(outer, nested.has_value() ? &*nested : nullptr, parsed));
  return parsed;
}

Result<ParsedConfig> read_model_config(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text,
                       read_text_file(path, companion_max_bytes(kConfigName)));
  MOE_ASSIGN_OR_RETURN(ParsedConfig parsed, parse_model_config(text, path.string()));
  const std::filesystem::path beside = path.parent_path() / kQuantizationName;
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) return parsed;
  MOE_ASSIGN_OR_RETURN(const std::string quantization,
                       read_text_file(beside, companion_max_bytes(kConfigName)));
  MOE_RETURN_IF_ERROR(add_quantization_file(quantization, beside.string(), parsed));
  return parsed;
}

}  // namespace moepack

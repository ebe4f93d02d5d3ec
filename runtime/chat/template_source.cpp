#include "runtime/chat/template_source.h"

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/config/companion_files.h"
#include "formats/config/special_token.h"

namespace moepack {
namespace {

// Of files that are no companions, too.
constexpr std::uint64_t kMaxTemplateBytes = companion_max_bytes(kChatTemplateName);
constexpr std::uint64_t kMaxJsonBytes = companion_max_bytes(kTokenizerConfigName);

// The document, or null where there is no such file.
Result<nlohmann::json> read_optional_json(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nlohmann::json();
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxJsonBytes));
  return parse_json(text, Where{.file = path.string()});
}

// A string, or a list of named ones: "default" and "tool_use".
void take_templates(const nlohmann::json& json, TemplateSource& source) {
  if (json.is_string()) source.text = json.get<std::string>();
  if (!json.is_array()) return;
  for (const nlohmann::json& entry : json) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (!entry["name"].is_string() || !entry["template"].is_string()) continue;
    const auto text = entry["template"].get<std::string>();
    if (entry["name"] == "default") source.text = text;
    if (entry["name"] == "tool_use") source.tool_text = text;
  }
  if (source.text.empty()) source.text = source.tool_text;
}

void take_special_tokens(const nlohmann::json& json, OrderedJson& tokens) {
  if (!json.is_object()) return;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (tokens.contains(name)) continue;
    if (auto text = special_token_text(json, name)) tokens[name] = *std::move(text);
  }
}

Status read_template_file(const std::filesystem::path& path, TemplateSource& source) {
  MOE_ASSIGN_OR_RETURN(source.text, read_text_file(path, kMaxTemplateBytes));
  source.name = path.string();
  return Status::ok();
}

}  // namespace

Result<TemplateSource> find_template(const std::filesystem::path& model,
                                     const std::filesystem::path& file) {
  TemplateSource source;
  source.special_tokens = OrderedJson::object();
  const std::filesystem::path config_path = model / kTokenizerConfigName;
  MOE_ASSIGN_OR_RETURN(const nlohmann::json config, read_optional_json(config_path));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json map,
                       read_optional_json(model / "special_tokens_map.json"));
  take_special_tokens(config, source.special_tokens);
  take_special_tokens(map, source.special_tokens);
  std::error_code ignored;
  if (!file.empty()) {
    MOE_RETURN_IF_ERROR(read_template_file(file, source));
    return source;
  }
  if (std::filesystem::exists(model / kChatTemplateName, ignored)) {
    MOE_RETURN_IF_ERROR(read_template_file(model / kChatTemplateName, source));
    return source;
  }
  const std::filesystem::path json_path = model / "chat_template.json";
  MOE_ASSIGN_OR_RETURN(const nlohmann::json own, read_optional_json(json_path));
  for (const auto& [json, path] : {std::pair(&own, json_path), std::pair(&config, config_path)}) {
    if (!json->is_object() || !json->contains("chat_template")) continue;
    take_templates((*json)["chat_template"], source);
    source.name = path.string();
    if (!source.text.empty()) return source;
  }
  return not_found(Where{.file = model.string()}, "the model has no chat template",
                   "name one with --chat-template-file");
}

}  // namespace moepack

#include "runtime/tokenizer/begin_of_text.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "formats/config/companion_files.h"
#include "formats/config/special_token.h"

namespace moepack {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

bool is_known(const TokenizerSpec& spec, std::int32_t id) {
  const auto is_it = [id](const AddedTokenSpec& token) { return token.id == id; };
  if (std::any_of(spec.added_tokens.begin(), spec.added_tokens.end(), is_it)) return true;
  return std::any_of(spec.vocab.begin(), spec.vocab.end(),
                     [id](const auto& token) { return token.second == id; });
}

// The id of a token's exact text; -1: there is none.
std::int32_t id_of(const TokenizerSpec& spec, const std::string& text) {
  for (const AddedTokenSpec& token : spec.added_tokens) {
    if (token.content == text) return token.id;
  }
  for (const auto& [known, id] : spec.vocab) {
    if (known == text) return id;
  }
  return -1;
}

Result<Ids> ids_of_config(const TokenizerSpec& spec, const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const auto json, read_companion(path.parent_path(), kTokenizerConfigName));
  if (!json.has_value()) return Ids();
  const std::string file = path.string();
  const Where where{.file = file};
  MOE_ASSIGN_OR_RETURN(const Json config, parse_json(*json, where));
  const auto wanted = config.find("add_bos_token");
  if (wanted == config.end() || *wanted != true) return Ids();
  const std::string text = special_token_text(config, "bos_token").value_or("");
  if (text.empty()) return Ids();
  const std::int32_t id = id_of(spec, text);
  if (id >= 0) return Ids{id};
  return corrupt(where, "bos_token \"" + printable(text, 64) + "\" is not in the vocabulary",
                 "correct it, or set add_bos_token to false");
}

}  // namespace

Result<Ids> begin_of_text_ids(const TokenizerSpec& spec, const Where& where,
                              const std::filesystem::path& config) {
  if (!spec.begin_of_text.has_value()) {
    return config.empty() ? Ids() : ids_of_config(spec, config);
  }
  for (const std::int32_t id : *spec.begin_of_text) {
    if (is_known(spec, id)) continue;
    return corrupt(where, "the post_processor names id " + std::to_string(id) +
                              ", which the vocabulary lacks");
  }
  return *spec.begin_of_text;
}

}  // namespace moepack

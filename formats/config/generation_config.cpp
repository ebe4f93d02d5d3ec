#include "formats/config/generation_config.h"

#include <nlohmann/json.hpp>

#include "formats/base/json.h"

namespace moepack {

Result<std::optional<std::vector<std::int32_t>>> parse_stop_ids(std::string_view text,
                                                                const std::string& file,
                                                                std::uint64_t vocab_size) {
  const Where where{.file = file};
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, where));
  if (!document.is_object()) return corrupt(where, "is not a JSON object");
  const auto found = document.find("eos_token_id");
  if (found == document.end() || found->is_null()) {
    return std::optional<std::vector<std::int32_t>>();
  }
  const nlohmann::json list = found->is_array() ? *found : nlohmann::json::array({*found});
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocab_size) {
      return corrupt(where, "eos_token_id is not an id below the vocabulary's size " +
                                std::to_string(vocab_size));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return std::optional(std::move(ids));
}

}  // namespace moepack

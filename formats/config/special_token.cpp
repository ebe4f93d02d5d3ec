#include "formats/config/special_token.h"

#include <nlohmann/json.hpp>

namespace moepack {

std::optional<std::string> special_token_text(const nlohmann::json& config,
                                              const std::string& name) {
  const auto found = config.find(name);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  const auto content = found->find("content");
  if (content == found->end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

}  // namespace moepack

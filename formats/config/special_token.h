// Named tokens of tokenizer_config.json: "bos_token" and the like.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moepack {

// The text of the token `name`, which stands as its text or as an object with its "content";
// nullopt: none is named, or `config` is no object.
std::optional<std::string> special_token_text(const nlohmann::json& config,
                                              const std::string& name);

}  // namespace moepack

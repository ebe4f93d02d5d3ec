// Parts of a tokenizer.json over bytes, as HuggingFace writes them.
#pragma once

#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

namespace moepack {

// The step that writes bytes in the byte-level alphabet, and its inverse; nothing is split by it.
nlohmann::ordered_json byte_level_json();
// Cuts text by each of these patterns in turn, matches and gaps alike, then byte_level_json.
nlohmann::ordered_json byte_level_splits_json(std::span<const std::string_view> patterns);

}  // namespace moepack

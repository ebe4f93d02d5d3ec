// Texts and token ids that commands take from files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/status.h"

namespace moepack::cli {

// Ids from a file of raw little-endian int32, or a JSON list (recognised by its first character).
Result<std::vector<std::int32_t>> read_token_ids(const std::filesystem::path& path);

// A whole text file.
Result<std::string> read_text(const std::filesystem::path& path);

}  // namespace moepack::cli

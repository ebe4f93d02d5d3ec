// Texts and token ids that commands take from files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/status.h"

namespace moepack::cli {

// Reads ids from a file of raw little-endian int32, or a JSON list (recognised by its first
// character).
Result<std::vector<std::int32_t>> read_token_ids(const std::filesystem::path& path);

// Reads a whole text file.
Result<std::string> read_text(const std::filesystem::path& path);
// The same; kCorrupt, with the offset, where it is not UTF-8.
Result<std::string> read_utf8_text(const std::filesystem::path& path);

// Reads texts and gives the ids of each by the tokenizer of the model directory. Special tokens in
// texts are recognised, and what the tokenizer puts before a text is there. An empty text is an
// error.
Result<std::vector<std::vector<std::int32_t>>> tokenize_files(
    const std::filesystem::path& model, const std::vector<std::string>& files);

}  // namespace moepack::cli

// A tokenizer that needs no training: it has one token for each byte, and three special ones.
#pragma once

#include <cstdint>
#include <filesystem>

#include "formats/base/status.h"

namespace moepack::bench {

constexpr std::int32_t kEndOfText = 256;  // then <|im_start|>, <|im_end|>
constexpr std::uint32_t kTokens = 259;

// Writes tokenizer.json, tokenizer_config.json and generation_config.json.
Status write_byte_tokenizer(const std::filesystem::path& directory);

}  // namespace moepack::bench

// The check of a tokenizer.json that libraries which must not know the runtime are handed.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack::cli {

// A TokenizerCheck (formats/config/companion_files.h): builds the tokenizer as `run` does and
// encodes a line of plain text with it. kUnsupported also when that line cannot be encoded.
Status check_tokenizer(std::string_view json, const std::string& file);

}  // namespace moepack::cli

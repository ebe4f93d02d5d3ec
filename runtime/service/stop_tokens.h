// The ids that end a turn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

// Those that the model's files name (read_stop_ids), and the markers with which `chat_template`,
// the source of a template or empty, ends turns.
Result<std::vector<std::int32_t>> turn_end_ids(const std::filesystem::path& model,
                                               const ModelConfig& config,
                                               const Tokenizer& tokenizer,
                                               std::string_view chat_template);

}  // namespace moepack

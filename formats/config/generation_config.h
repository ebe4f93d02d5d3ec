// generation_config.json: what of it running a model takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// The ids under "eos_token_id", which end a text; nullopt where the document names none.
// kCorrupt: `text` is not JSON, or an id is not below `vocab_size`.
Result<std::optional<std::vector<std::int32_t>>> parse_stop_ids(std::string_view text,
                                                                const std::string& file,
                                                                std::uint64_t vocab_size);

}  // namespace moepack

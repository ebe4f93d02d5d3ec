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

// How the model's makers would have its tokens drawn; nullopt where the document does not say.
struct GenerationDefaults {
  std::optional<double> temperature;  // 0 where "do_sample" is false
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<std::int64_t> top_k;
};
// kCorrupt: `text` is not JSON, or a number is none, negative or not finite.
Result<GenerationDefaults> parse_generation_defaults(std::string_view text,
                                                     const std::string& file);

}  // namespace moepack

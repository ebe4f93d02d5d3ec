#include "runtime/model/token_ids.h"

#include <string>

namespace moepack {

Status check_tokens(std::span<const std::int32_t> tokens, std::uint32_t vocabulary) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && static_cast<std::uint32_t>(tokens[i]) < vocabulary) continue;
    return invalid_argument("token id " + std::to_string(tokens[i]) + " at index " +
                                std::to_string(i) + " is not in the vocabulary of " +
                                std::to_string(vocabulary),
                            "use ids made by this model's tokenizer");
  }
  return Status::ok();
}

}  // namespace moepack

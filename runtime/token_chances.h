// How probable tokens are, of the logits as the model gave them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

struct TokenChance {
  std::int32_t id = 0;
  float logprob = 0;  // natural logarithm of the softmax; -infinity: never
};

struct TokenStep {
  TokenChance token;
  std::vector<TokenChance> top;  // the most probable first, of equals the lowest id first
};

// logits: [vocabulary], without the padding rows of a model; unchanged, that is before penalties,
// biases, masks and temperature. `top` alternatives, fewer where the vocabulary is smaller. The
// softmax is computed in double. kCorrupt, with the id, for a NaN or +inf and when no logit is
// finite; kInvalidArgument for an id outside the logits. Pure; any number of threads.
Result<TokenStep> token_chances(std::span<const float> logits, std::int32_t id, std::size_t top);

}  // namespace moepack

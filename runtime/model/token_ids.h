// Token ids that come from outside.
#pragma once

#include <cstdint>
#include <span>

#include "formats/base/status.h"

namespace moepack {

// kInvalidArgument with index and id for a token that is not in a vocabulary of this size.
Status check_tokens(std::span<const std::int32_t> tokens, std::uint32_t vocabulary);

}  // namespace moepack

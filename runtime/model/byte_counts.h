// Sums and products of bytes that cannot wrap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "formats/base/bytes.h"

namespace moepack {

// Counts of bytes stay at or below this, which no machine has, so that adding some never wraps.
constexpr std::uint64_t kTooManyBytes = std::uint64_t{1} << 60;

inline std::uint64_t capped_sum(std::uint64_t a, std::uint64_t b) {
  return std::min(kTooManyBytes, checked_add(a, b).value_or(kTooManyBytes));
}
inline std::uint64_t capped_product(std::uint64_t a, std::uint64_t b) {
  return std::min(kTooManyBytes, checked_mul(a, b).value_or(kTooManyBytes));
}

}  // namespace moepack

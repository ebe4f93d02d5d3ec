#include "runtime/cpu/unpacked_tokens.h"

namespace moepack {

std::size_t most_unpacked_tokens(const CpuidReport& report) {
  // A Zen 4's units that do not multiply unpack codes meanwhile. An Intel's multipliers unpack,
  // too.
  return is_made_by_amd(report) ? 32 : 0;
}

std::size_t most_unpacked_tokens() {
  static const std::size_t kTokens = most_unpacked_tokens(read_cpuid());
  return kTokens;
}

}  // namespace moepack

// How often a product unpacks the same codes where several tokens are multiplied with them: once,
// into a panel of bytes, or again for every few tokens. It never changes a result.
#pragma once

#include <cstddef>

#include "runtime/cpu/cpu_detect.h"

namespace moepack {

// Tokens of a call up to which codes are unpacked again, for every few of them: what was fastest on
// processors of the maker (docs/decisions.md, section 80). Pure.
std::size_t most_unpacked_tokens(const CpuidReport& report);

// Of this processor, asked for once. Any number of threads.
std::size_t most_unpacked_tokens();

}  // namespace moepack

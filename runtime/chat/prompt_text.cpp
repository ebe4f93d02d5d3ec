#include "runtime/chat/prompt_text.h"

#include <algorithm>

namespace moepack {

std::vector<TextRange>::const_iterator first_behind(const std::vector<TextRange>& ranges,
                                                    std::size_t at) {
  return std::upper_bound(
      ranges.begin(), ranges.end(), at,
      [](std::size_t byte, const TextRange& range) { return byte < range.end; });
}

bool touches(const std::vector<TextRange>& ranges, TextRange part) {
  const auto range = first_behind(ranges, part.begin);
  return range != ranges.end() && range->begin < part.end;
}

}  // namespace moepack

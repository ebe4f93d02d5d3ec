// Consecutive parts of a range that are as equal as they can be. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace moepack {

struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Part `index` < parts of [0, count); parts >= 1. The first ones have one more where they cannot
// all have as many.
constexpr Part equal_part(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t each = count / parts;
  const std::size_t longer = count % parts;
  const std::size_t begin = each * index + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

}  // namespace moepack

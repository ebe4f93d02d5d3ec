// Byte by byte: are two ranges of files equal?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "convert/source/stored_matrix.h"
#include "formats/base/status.h"

namespace moepack {

struct ByteDifference {
  std::uint64_t offset = 0;  // in the first range's file
  std::byte expected{};      // of the second
  std::byte found{};         // of the first
};

// Holds the buffers of one thread, a mebibyte.
class RangeComparer {
 public:
  // The first byte of `here` that is another in `there`, which is as long.
  Result<std::optional<ByteDifference>> compare(const FileRange& here, const FileRange& there);

 private:
  std::vector<std::byte> here_;
  std::vector<std::byte> there_;
};

}  // namespace moepack

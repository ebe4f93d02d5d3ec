// Rows of a matrix that do not follow each other in the tensor that holds them: several matrices
// fused into one, head by head, or heads in another order.
#pragma once

#include <cstdint>
#include <vector>

namespace moepack {

// `count` times `rows` rows, the first at row `first` of the tensor, each `stride` rows behind the
// one before.
struct RowRun {
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::uint64_t stride = 0;
  std::uint64_t count = 0;

  std::uint64_t total() const { return rows * count; }
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

// The rows of a matrix, in order.
using RowRuns = std::vector<RowRun>;

inline std::uint64_t count_rows(const RowRuns& runs) {
  std::uint64_t sum = 0;
  for (const RowRun& run : runs) sum += run.total();
  return sum;
}

}  // namespace moepack

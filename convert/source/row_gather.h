// Rows of a matrix that do not follow each other in the tensor that holds them: several matrices
// fused into one, head by head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "formats/base/status.h"

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

// The same as bytes. Borrows the runs.
class RowGather {
 public:
  // `row_bytes`: of one row of the tensor, whatever its format; not 0.
  RowGather(const RowRuns& runs, std::uint64_t row_bytes) : runs_(runs), row_bytes_(row_bytes) {}

  // Calls piece(source, at, size) for the pieces of bytes [begin, begin + size) of the gathered
  // matrix, in order: `size` bytes that stand at `source` of the tensor and belong at `at`, counted
  // from `begin`. Stops at the first error and returns it.
  template <typename Piece>
  Status for_each_piece(std::uint64_t begin, std::uint64_t size, const Piece& piece) const {
    std::uint64_t at = 0;  // done
    std::uint64_t run_begin = 0;
    for (const RowRun& run : runs_) {
      const std::uint64_t unit = run.rows * row_bytes_;
      const std::uint64_t run_end = run_begin + unit * run.count;
      while (at < size && begin + at < run_end) {
        const std::uint64_t index = (begin + at - run_begin) / unit;
        const std::uint64_t within = (begin + at - run_begin) % unit;
        const std::uint64_t part = std::min(size - at, unit - within);
        const std::uint64_t row = run.first + index * run.stride;
        MOE_RETURN_IF_ERROR(piece(row * row_bytes_ + within, at, part));
        at += part;
      }
      run_begin = run_end;
      if (at == size) break;
    }
    return Status::ok();
  }

 private:
  const RowRuns& runs_;
  std::uint64_t row_bytes_;
};

}  // namespace moepack

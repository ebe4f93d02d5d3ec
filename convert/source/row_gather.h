// Rows that do not follow each other in the tensor that holds them, as pieces of its bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "formats/base/status.h"
#include "formats/config/row_runs.h"

namespace moepack {

// The bytes of the rows of `runs`. Borrows the runs.
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

// How products are cut into the tasks that threads take: parts of a matrix's rows and, of many
// tokens, of the tokens. Arithmetic alone: what is computed does not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/model/code_kernels.h"

namespace moepack {

// y[t] = W x[t] of `tokens` tokens with a matrix [rows, cols], and the parallel region it is in.
struct ProductShape {
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::size_t tokens = 0;
  bool takes_blocks = false;  // inputs are quantized
  // A task's rows are a multiple of it, but for the matrix's last ones; a multiple of kCodeRows.
  std::uint64_t row_unit = kCodeRows;
  std::size_t threads = 1;
  // Multiply-adds of all matrices of the region that are cut, where they are many and each is
  // small: the more each thread has of them, the larger are the tasks, which read inputs for more
  // rows. 0: the matrix is alone, or beside others of which each is cut for all threads.
  std::uint64_t region_work = 0;
};

struct ProductTask {
  std::uint64_t row_begin = 0;
  std::uint64_t row_end = 0;
  std::size_t token_begin = 0;
  std::size_t token_end = 0;

  std::size_t tokens() const { return token_end - token_begin; }
};

// The tasks of one product: each place of the result belongs to exactly one. Large enough to be
// worth handing to a thread, small enough that each thread gets several.
class ProductTasks {
 public:
  explicit ProductTasks(const ProductShape& shape);

  std::size_t count() const { return row_parts_ * token_parts_; }
  // index < count(); tasks of the same tokens follow each other, in the order of rows.
  ProductTask at(std::size_t index) const;

 private:
  std::uint64_t rows_;
  std::size_t tokens_;
  std::uint64_t task_rows_;
  std::size_t row_parts_ = 0;
  std::size_t token_parts_;  // as equal as they can be
};

}  // namespace moepack

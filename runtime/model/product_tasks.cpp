#include "runtime/model/product_tasks.h"

#include <algorithm>

#include "formats/base/bytes.h"
#include "runtime/model/equal_parts.h"

namespace moepack {
namespace {

// Multiply-adds of a task: usually at least the first; the second where a matrix has too few rows
// to give every thread that much, and below it a task costs less than handing it over.
constexpr std::uint64_t kTaskWork = std::uint64_t{512} * 1024;
constexpr std::uint64_t kLeastTaskWork = std::uint64_t{32} * 1024;
// Of a large matrix each thread gets so many tasks, unless a task would have more work than this
// many of the usual ones and the last to end keep the others waiting.
constexpr std::uint64_t kTasksPerThread = 8;
constexpr std::uint64_t kMostTaskWork = 8;
constexpr std::uint64_t kRowGroup = 2 * kCodeRows;
// Of many tokens a task takes a part (kPanelTokens) and more rows instead, as long as their weights
// stay in a second-level cache too: inputs are read less often from what all threads share
// (docs/decisions.md, section 89).
constexpr std::size_t kManyTokens = 256;
constexpr std::uint64_t kMostTaskRows = 256;

std::uint64_t work_per_row(const ProductShape& shape) {
  return std::max<std::uint64_t>(1, shape.cols * shape.tokens);
}

// Rows of a task of all tokens, of a product by itself.
std::uint64_t usual_rows(const ProductShape& shape) {
  const std::uint64_t per_row = work_per_row(shape);
  const std::uint64_t usual = align_up(std::max<std::uint64_t>(1, kTaskWork / per_row), kRowGroup);
  const std::uint64_t share = align_up(shape.rows / (kTasksPerThread * shape.threads), kRowGroup);
  const std::uint64_t rows = std::clamp(share, usual, kMostTaskWork * usual);
  if (shape.rows >= rows * shape.threads) return rows;
  // Whole blocks of the kernels: a task of single rows takes several times as long.
  const std::uint64_t least = std::max<std::uint64_t>(1, kLeastTaskWork / per_row);
  return std::min(rows, align_up(std::max(least, div_up(shape.rows, shape.threads)), kCodeRows));
}

// The same in a region that may have plenty of work.
std::uint64_t rows_in_region(const ProductShape& shape) {
  const std::uint64_t usual = usual_rows(shape);
  const std::uint64_t plenty = kTasksPerThread * shape.threads * kMostTaskWork * kTaskWork;
  if (shape.region_work < plenty) return usual;
  return std::max(usual, align_up(kMostTaskWork * kTaskWork / work_per_row(shape), kRowGroup));
}

}  // namespace

ProductTasks::ProductTasks(const ProductShape& shape)
    : rows_(shape.rows), tokens_(shape.tokens), task_rows_(rows_in_region(shape)), token_parts_(1) {
  if (shape.takes_blocks && tokens_ >= kManyTokens) {
    token_parts_ = div_up(tokens_, kPanelTokens);
    task_rows_ = std::max(task_rows_, std::min(task_rows_ * token_parts_, kMostTaskRows));
  }
  task_rows_ = align_up(task_rows_, shape.row_unit);
  row_parts_ = tokens_ == 0 ? 0 : div_up(rows_, task_rows_);
}

ProductTask ProductTasks::at(std::size_t index) const {
  // Of few tokens, where a task takes microseconds, without divisions.
  const std::size_t part = token_parts_ == 1 ? 0 : index / row_parts_;
  const std::uint64_t row = (index - part * row_parts_) * task_rows_;
  const Part tokens =
      token_parts_ == 1 ? Part{0, tokens_} : equal_part(tokens_, token_parts_, part);
  return {row, std::min(rows_, row + task_rows_), tokens.begin, tokens.end};
}

}  // namespace moepack

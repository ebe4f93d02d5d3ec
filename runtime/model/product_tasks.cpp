#include "runtime/model/product_tasks.h"

#include <algorithm>

#include "formats/base/bytes.h"
#include "runtime/model/equal_parts.h"

namespace moepack {
namespace {

// Each thread gets so many tasks of a matrix, or of a region that tells its work, so that who is
// done can take from who is not; but a task has at least so many multiply-adds (docs/decisions.md,
// section 99) ...
constexpr std::uint64_t kTasksPerThread = 8;
constexpr std::uint64_t kLeastTaskWork = std::uint64_t{64} * 1024;
// ... and at most so many groups; a group is the fewest multiples of kRowGroup rows with this much.
constexpr std::uint64_t kMostGroups = 8;
constexpr std::uint64_t kGroupWork = std::uint64_t{512} * 1024;
constexpr std::uint64_t kRowGroup = 2 * kCodeRows;
// Where a matrix by itself has too few rows to give every thread the least of these: below it a
// task costs less than handing it over.
constexpr std::uint64_t kSmallestWork = std::uint64_t{32} * 1024;
// Of many tokens a task takes a part (kPanelTokens) and more rows instead, as long as their weights
// stay in a second-level cache too: inputs are read less often from what all threads share
// (docs/decisions.md, section 89).
constexpr std::size_t kManyTokens = 256;
constexpr std::uint64_t kMostTaskRows = 256;

std::uint64_t work_per_row(const ProductShape& shape) {
  return std::max<std::uint64_t>(1, shape.cols * shape.tokens);
}

// Rows of a task of all tokens.
std::uint64_t rows_of_task(const ProductShape& shape) {
  const std::uint64_t per_row = work_per_row(shape);
  const auto rows_with = [&](std::uint64_t work) {
    return align_up(std::max<std::uint64_t>(1, work / per_row), kRowGroup);
  };
  const std::uint64_t region = std::max(shape.region_work, shape.rows * per_row);
  const std::uint64_t share = region / (kTasksPerThread * shape.threads * per_row);
  const std::uint64_t rows = std::clamp(share / kRowGroup * kRowGroup, rows_with(kLeastTaskWork),
                                        kMostGroups * rows_with(kGroupWork));
  if (shape.region_work > 0 || shape.rows >= rows * shape.threads) return rows;
  // Whole blocks of the kernels: a task of single rows takes several times as long.
  const std::uint64_t smallest = std::max<std::uint64_t>(1, kSmallestWork / per_row);
  return std::min(rows, align_up(std::max(smallest, div_up(shape.rows, shape.threads)), kCodeRows));
}

}  // namespace

ProductTasks::ProductTasks(const ProductShape& shape)
    : rows_(shape.rows), tokens_(shape.tokens), task_rows_(rows_of_task(shape)), token_parts_(1) {
  if (shape.takes_blocks && tokens_ >= kManyTokens) {
    token_parts_ = div_up(tokens_, kPanelTokens);
    task_rows_ = std::max(task_rows_, std::min(task_rows_ * token_parts_, kMostTaskRows));
  }
  if (tokens_ == 0 || rows_ == 0) return;
  // As equal as they can be.
  row_parts_ = div_up(rows_, align_up(task_rows_, shape.row_unit));
  task_rows_ = align_up(div_up(rows_, row_parts_), shape.row_unit);
  row_parts_ = div_up(rows_, task_rows_);
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

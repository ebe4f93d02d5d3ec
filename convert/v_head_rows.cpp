#include "convert/v_head_rows.h"

#include <algorithm>
#include <cassert>

namespace moepack {

using VHeads = ResidentConventions::VHeads;

VHeadRows::VHeadRows(const ModelConfig& config, VHeads from, VHeads to)
    : key_heads_(config.linear_key_heads),
      value_heads_(config.linear_value_heads),
      from_(from),
      to_(to) {}

// One run a key head, or towards tiled order one for each of a key head's V heads.
void VHeadRows::add_runs(std::uint64_t first, std::uint64_t head_rows, RowRuns& runs) const {
  const std::uint64_t ratio = value_heads_ / key_heads_;
  const std::uint64_t stride = to_ == VHeads::kGrouped ? key_heads_ : ratio;
  for (std::uint64_t head = 0; head < stride; ++head) {
    runs.push_back({.first = first + head * head_rows,
                    .rows = head_rows,
                    .stride = stride * head_rows,
                    .count = value_heads_ / stride});
  }
}

SourceMatrix VHeadRows::rows(const SourceMatrix& matrix, std::uint64_t first,
                             std::uint64_t head_rows) const {
  if (changes_nothing()) return matrix;
  assert(matrix.runs == nullptr && first + head_rows * value_heads_ == matrix.rows);
  RowRuns runs;
  if (first != 0) runs.push_back({.first = 0, .rows = first, .stride = first, .count = 1});
  add_runs(first, head_rows, runs);
  return gather_rows(matrix, std::move(runs));
}

std::optional<SourceMatrix> VHeadRows::columns(const SourceMatrix& matrix) {
  if (changes_nothing()) return matrix;
  assert(matrix.runs == nullptr && !is_affine(matrix.format));
  const std::uint64_t head_cols = matrix.cols / value_heads_;
  const std::uint64_t block = std::max(1U, qformat_info(matrix.format.id).block_values);
  if (head_cols % block != 0) return std::nullopt;
  if (column_runs_ == nullptr || column_rows_ != matrix.rows) {
    RowRuns runs;
    for (std::uint64_t row = 0; row < matrix.rows; ++row) add_runs(row * value_heads_, 1, runs);
    column_runs_ = std::make_shared<const RowRuns>(std::move(runs));
    column_rows_ = matrix.rows;
  }
  SourceMatrix heads = matrix;
  heads.rows = matrix.rows * value_heads_;
  heads.cols = head_cols;
  heads.runs = column_runs_;
  return heads;
}

}  // namespace moepack

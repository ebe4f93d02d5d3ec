#include "convert/source/v_head_rows.h"

#include <algorithm>
#include <cassert>

namespace moepack {
namespace {

using VHeads = ResidentConventions::VHeads;

// The heads alone: one run a key head towards grouped order, towards tiled order one for each of a
// key head's V heads.
void add_runs(std::uint64_t first, std::uint64_t unit, const ModelConfig& c, VHeads to,
              RowRuns& runs) {
  const std::uint64_t ratio = c.linear_value_heads / c.linear_key_heads;
  const std::uint64_t stride = to == VHeads::kGrouped ? c.linear_key_heads : ratio;
  for (std::uint64_t head = 0; head < stride; ++head) {
    runs.push_back({.first = first + head * unit,
                    .rows = unit,
                    .stride = stride * unit,
                    .count = c.linear_value_heads / stride});
  }
}

}  // namespace

RowRuns v_head_runs(const VHeadPlace& place, const ModelConfig& config, VHeads from, VHeads to) {
  RowRuns runs;
  const std::uint64_t first = place.first;
  if (from == to) return {{0, first + place.unit * config.linear_value_heads, 1, 1}};
  if (first != 0) runs.push_back({.first = 0, .rows = first, .stride = first, .count = 1});
  add_runs(first, place.unit, config, to, runs);
  return runs;
}

VHeadRows::VHeadRows(const ModelConfig& config, VHeads from, VHeads to)
    : config_(config), from_(from), to_(to) {}

std::optional<SourceMatrix> VHeadRows::gather(const SourceMatrix& matrix, const VHeadPlace& place) {
  if (changes_nothing()) return matrix;
  assert(matrix.runs == nullptr);
  if (place.in_columns) return gather_columns(matrix, place);
  return gather_rows(matrix, v_head_runs(place, config_, from_, to_));
}

std::optional<SourceMatrix> VHeadRows::gather_columns(const SourceMatrix& matrix,
                                                      const VHeadPlace& place) {
  assert(!is_affine(matrix.format));
  const std::uint64_t block = std::max(1U, qformat_info(matrix.format.id).block_values);
  if (place.unit % block != 0) return std::nullopt;
  const std::uint64_t heads = config_.linear_value_heads;
  if (column_runs_ == nullptr || column_rows_ != matrix.rows) {
    RowRuns runs;
    for (std::uint64_t row = 0; row < matrix.rows; ++row) {
      add_runs(row * heads, 1, config_, to_, runs);
    }
    column_runs_ = std::make_shared<const RowRuns>(std::move(runs));
    column_rows_ = matrix.rows;
  }
  SourceMatrix moved = matrix;
  moved.rows = matrix.rows * heads;
  moved.cols = place.unit;
  moved.runs = column_runs_;
  return moved;
}

}  // namespace moepack

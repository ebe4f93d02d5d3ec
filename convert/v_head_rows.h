// A source matrix whose V heads come in another order: the same bytes, gathered row by row, or
// where the columns are V heads, head by head.
#pragma once

#include <cstdint>
#include <optional>

#include "convert/source_matrix.h"
#include "formats/model_config.h"
#include "formats/resident_manifest.h"

namespace moepack {

// Gathers matrices of one model from order `from` to `to` (runtime/v_head_order.h tells the two).
class VHeadRows {
 public:
  VHeadRows(const ModelConfig& config, ResidentConventions::VHeads from,
            ResidentConventions::VHeads to);

  // Rows from `first` on belong to the V heads, `head_rows` to each.
  SourceMatrix rows(const SourceMatrix& matrix, std::uint64_t first, std::uint64_t head_rows) const;
  // The columns are V heads. The result has a row for each head of a row, in the same bytes as the
  // whole: [rows * heads, columns of a head]. nullopt where a block spans two heads.
  std::optional<SourceMatrix> columns(const SourceMatrix& matrix);

 private:
  bool changes_nothing() const { return from_ == to_ || key_heads_ == value_heads_; }
  void add_runs(std::uint64_t first, std::uint64_t head_rows, RowRuns& runs) const;

  std::uint64_t key_heads_;
  std::uint64_t value_heads_;
  ResidentConventions::VHeads from_;
  ResidentConventions::VHeads to_;
  std::shared_ptr<const RowRuns> column_runs_;  // of all matrices with as many rows
  std::uint64_t column_rows_ = 0;
};

}  // namespace moepack

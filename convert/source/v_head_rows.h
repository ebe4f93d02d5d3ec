// Where V heads lie in the tensors of GatedDeltaNet, and how a source matrix is read with them in
// the other order: the same bytes, gathered row by row, or head by head where they are columns.
// runtime/model/v_head_order.h tells the two orders.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "convert/source/source_matrix.h"
#include "formats/config/architecture.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// All rows (or columns) of such a tensor in order `to`, as runs of those in order `from`.
RowRuns v_head_runs(const VHeadPlace& place, const ModelConfig& config,
                    ResidentConventions::VHeads from, ResidentConventions::VHeads to);

// Gathers matrices of one model from order `from` to `to`.
class VHeadRows {
 public:
  VHeadRows(const ModelConfig& config, ResidentConventions::VHeads from,
            ResidentConventions::VHeads to);

  // Nothing has to move.
  bool changes_nothing() const {
    return from_ == to_ || config_.linear_key_heads == config_.linear_value_heads;
  }
  // `matrix` has no runs of its own unless changes_nothing(). In rows: the gathered matrix. In
  // columns: with a row for each head of a row, in the same bytes as the whole, [rows * heads,
  // columns of a head]; nullopt where a block spans two heads.
  std::optional<SourceMatrix> gather(const SourceMatrix& matrix, const VHeadPlace& place);

 private:
  std::optional<SourceMatrix> gather_columns(const SourceMatrix& matrix, const VHeadPlace& place);

  ModelConfig config_;
  ResidentConventions::VHeads from_;
  ResidentConventions::VHeads to_;
  std::shared_ptr<const RowRuns> column_runs_;  // of all matrices with as many rows
  std::uint64_t column_rows_ = 0;
};

}  // namespace moepack

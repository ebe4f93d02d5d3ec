#include "convert/quantize/expert_matrices.h"

#include <algorithm>
#include <cmath>

#include "convert/source/expert_name.h"
#include "quant/affine_matrix.h"

namespace moepack {
namespace {

// The whole matrix; `name`: for messages.
Status read_matrix(const StoredMatrix& stored, const std::string& name, BlockDecoder& decoder,
                   Matrix& out) {
  const auto rows = static_cast<std::size_t>(stored.rows);
  const auto cols = static_cast<std::size_t>(stored.cols);
  out.resize(static_cast<Eigen::Index>(padded_rows(rows)), static_cast<Eigen::Index>(cols));
  out.bottomRows(out.rows() - static_cast<Eigen::Index>(rows)).setZero();
  const auto stride = static_cast<std::size_t>(out.rows());
  for (std::uint64_t begin = 0; begin < stored.elements(); begin += kDecodeBlock) {
    const std::uint64_t count = std::min(kDecodeBlock, stored.elements() - begin);
    MOE_ASSIGN_OR_RETURN(const DecodedBlock block, decoder.decode(stored, begin, count));
    std::size_t row = begin / cols;
    std::size_t col = begin % cols;
    for (float value : block.values) {
      if (!std::isfinite(value)) {
        return corrupt(Where{.file = stored.codes().file->path(),
                             .tensor = name,
                             .offset = stored.codes().file_offset(component_byte(
                                 stored.format, Component::kCodes, row * cols + col))},
                       "holds a value that is not finite, at row " + std::to_string(row) +
                           ", column " + std::to_string(col),
                       "download the file again, or start from another source with --from");
      }
      out.data()[col * stride + row] = value;
      if (++col == cols) {
        col = 0;
        ++row;
      }
    }
  }
  return Status::ok();
}

}  // namespace

Status ExpertReader::read(const ExpertWeights& weights, std::uint32_t layer, std::uint32_t expert,
                          ExpertMatrices& out) {
  MOE_RETURN_IF_ERROR(weights.check(layer, expert, bytes_));
  for (Projection p : kAllProjections) {
    const StoredMatrix stored = weights.of(layer, expert, p);
    Matrix& matrix = p == Projection::kGate ? out.gate : p == Projection::kUp ? out.up : out.down;
    if (p == Projection::kGate) out.width = stored.rows;
    MOE_RETURN_IF_ERROR(read_matrix(stored, expert_name(layer, expert, p), decoder_, matrix));
  }
  return Status::ok();
}

}  // namespace moepack

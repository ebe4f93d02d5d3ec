// Rows of a source matrix in the format that is to be stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "convert/source/source_matrix.h"

namespace moepack {

// Where rows go, as sized by matrix_bytes(target, rows, cols).
using MatrixSpans = Components<std::span<std::byte>>;

// Holds the buffers of one thread: up to about a mebibyte of source rows and one row of floats.
class Transcoder {
 public:
  // Fills `out` with rows [row_begin, row_end) of `source` in `target`. The same format: the bytes
  // unchanged. f32: each value as it is. bf16: each value rounded to nearest. Affine: MLX's rule
  // (quant/affine.h); a row with a value that is not finite is kCorrupt.
  Status run(const SourceMatrix& source, const WeightFormat& target, std::uint64_t row_begin,
             std::uint64_t row_end, const MatrixSpans& out);

 private:
  Status read_rows(const SourceMatrix& source, std::uint64_t row_begin, std::uint64_t row_end);
  Status encode_row(const SourceMatrix& source, const WeightFormat& target, std::uint64_t row,
                    std::uint64_t out_row, const MatrixSpans& out) const;

  Components<std::vector<std::byte>> parts_;
  std::vector<float> row_;
};

}  // namespace moepack

// Rows of a source matrix in the format that is to be stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "convert/pack/not_finite.h"
#include "convert/source/source_matrix.h"

namespace moepack {

// Where rows go, as sized by matrix_bytes(target, rows, cols).
using MatrixSpans = Components<std::span<std::byte>>;

// Holds the buffers of one thread: up to about a mebibyte of source rows and one row of floats.
class Transcoder {
 public:
  // `not_finite`: told of the tensors whose values, as they are stored, are not all numbers.
  // nullptr: nobody asks. It outlives the object.
  explicit Transcoder(NotFiniteTensors* not_finite = nullptr) : not_finite_(not_finite) {}

  // Fills `out` with rows [row_begin, row_end) of `source` in `target`. The same format: the bytes
  // unchanged. f32: each value as it is. bf16: each value rounded to nearest. Affine: MLX's rule
  // (quant/affine.h); a row with a value that is not finite is kCorrupt, which in the other cases
  // is only noted.
  Status run(const SourceMatrix& source, const WeightFormat& target, std::uint64_t row_begin,
             std::uint64_t row_end, const MatrixSpans& out);

 private:
  Status write_rows(const SourceMatrix& source, const WeightFormat& target, std::uint64_t row_begin,
                    std::uint64_t row_end, const MatrixSpans& out);
  Status read_rows(const SourceMatrix& source, std::uint64_t row_begin, std::uint64_t row_end);
  Status encode_row(const SourceMatrix& source, const WeightFormat& target, std::uint64_t row,
                    std::uint64_t out_row, const MatrixSpans& out) const;

  NotFiniteTensors* not_finite_;
  Components<std::vector<std::byte>> parts_;
  std::vector<float> row_;
};

}  // namespace moepack

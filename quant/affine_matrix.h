// A matrix in an affine format while its codes are being chosen, and its way into a record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/affine.h"
#include "quant/linear_algebra.h"

namespace moepack {

// y = W x with W [rows, cols]; element (r, c) is scale(r, g) * code(r, c) + bias(r, g), g = c /
// group_size. Column-major; rows are padded to whole tiles (quant/tile.h), the padding is zero.
struct AffineMatrix {
  // group_size divides cols. Codes, scales and biases begin as zero.
  AffineMatrix(std::size_t rows, std::size_t cols, std::uint32_t bits, std::size_t group_size);

  std::size_t padded_rows() const { return static_cast<std::size_t>(scale.rows()); }
  std::size_t groups() const { return cols / group_size; }
  float max_code() const { return static_cast<float>((1U << bits) - 1U); }

  std::size_t rows;
  std::size_t cols;
  std::uint32_t bits;      // 2, 3, 4, 5, 6 or 8
  std::size_t group_size;  // 32, 64 or 128
  Matrix scale;            // [padded rows, groups], bf16 values, >= 0
  Matrix bias;             // [padded rows, groups], bf16 values
  Eigen::Matrix<std::uint8_t, Eigen::Dynamic, Eigen::Dynamic> codes;  // [padded rows, cols]
};

// `rows` rounded up to whole tiles.
std::size_t padded_rows(std::size_t rows);

// out(r, c) = stored value - w(r, c). w, out: [padded rows, cols].
void stored_minus(const AffineMatrix& q, const Matrix& w, Matrix& out);

// Writes the matrix as a record holds it: codes, scales and biases, each row by row. The spans take
// all rows, and have the sizes that matrix_bytes states for the format with bf16 scales.
void write_affine_matrix(const AffineMatrix& q, const AffineRowOut& out);

}  // namespace moepack

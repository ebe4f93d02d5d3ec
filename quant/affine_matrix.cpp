#include "quant/affine_matrix.h"

#include <cassert>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"
#include "quant/affine_group.h"
#include "quant/tile.h"

namespace moepack {

std::size_t padded_rows(std::size_t rows) { return align_up(rows, kTileRows); }

AffineMatrix::AffineMatrix(std::size_t row_count, std::size_t col_count, std::uint32_t code_bits,
                           std::size_t group)
    : rows(row_count), cols(col_count), bits(code_bits), group_size(group) {
  assert(cols % group_size == 0);
  const auto padded = static_cast<Eigen::Index>(moepack::padded_rows(rows));
  scale.setZero(padded, static_cast<Eigen::Index>(groups()));
  bias.setZero(padded, static_cast<Eigen::Index>(groups()));
  codes.setZero(padded, static_cast<Eigen::Index>(cols));
}

void stored_minus(const AffineMatrix& q, const Matrix& w, Matrix& out) {
  out.resize(w.rows(), w.cols());
  for (std::size_t c = 0; c < q.cols; ++c) {
    const auto column = static_cast<Eigen::Index>(c);
    const auto group = static_cast<Eigen::Index>(c / q.group_size);
    out.col(column) = q.scale.col(group).cwiseProduct(q.codes.col(column).cast<float>()) +
                      q.bias.col(group) - w.col(column);
  }
}

void write_affine_matrix(const AffineMatrix& q, const AffineRowOut& out) {
  const std::size_t code_row = q.cols * q.bits / 8;
  assert(out.codes.size() == code_row * q.rows);
  std::vector<std::uint8_t> codes(q.cols);
  for (std::size_t r = 0; r < q.rows; ++r) {
    const auto row = static_cast<Eigen::Index>(r);
    for (std::size_t c = 0; c < q.cols; ++c) codes[c] = q.codes(row, static_cast<Eigen::Index>(c));
    pack_codes(codes, q.bits, out.codes.data() + r * code_row);
    for (std::size_t g = 0; g < q.groups(); ++g) {
      const auto group = static_cast<Eigen::Index>(g);
      const std::size_t at = (r * q.groups() + g) * sizeof(std::uint16_t);
      store_le(out.scales.data() + at, f32_to_bf16(q.scale(row, group)));
      store_le(out.biases.data() + at, f32_to_bf16(q.bias(row, group)));
    }
  }
}

}  // namespace moepack

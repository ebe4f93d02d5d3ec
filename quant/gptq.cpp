#include "quant/gptq.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "quant/tile.h"

namespace moepack {
namespace {

constexpr float kMostDamping = 10.0F;
constexpr float kDampingStep = 3.1622777F;  // half an order of magnitude

std::vector<std::uint32_t> rising_order(const Matrix& hessian) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(hessian.rows()));
  std::iota(order.rbegin(), order.rend(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return hessian(a, a) < hessian(b, b); });
  return order;
}

Matrix permuted(const Matrix& hessian, const std::vector<std::uint32_t>& order, float diagonal) {
  const Eigen::Index n = hessian.rows();
  Matrix out(n, n);
  for (Eigen::Index j = 0; j < n; ++j) {
    const auto column = hessian.col(order[static_cast<std::size_t>(j)]);
    for (Eigen::Index i = 0; i <= j; ++i) out(i, j) = column(order[static_cast<std::size_t>(i)]);
    // A column without input stands alone.
    if (out(j, j) == 0.0F) out(j, j) = 1.0F;
    out(j, j) += diagonal;
  }
  return out;
}

// The tile buffers of one block of columns.
struct BlockTiles {
  std::array<float, kTileColumns * kTileRows> w;
  std::array<float, kTileColumns * kTileRows> scale;
  std::array<float, kTileColumns * kTileRows> bias;
  std::array<float, kTileColumns * kTileRows> codes;
  std::array<float, kTileColumns * kTileRows> error;
};

}  // namespace

std::optional<GptqFactor> factor_hessian(const Matrix& hessian, float damping) {
  GptqFactor factor;
  factor.order = rising_order(hessian);
  const float mean = hessian.diagonal().mean();
  for (float d = damping; d <= kMostDamping; d *= kDampingStep) {
    factor.inverse = permuted(hessian, factor.order, d * mean);
    factor.damping = d;
    if (invert_cholesky(factor.inverse)) return factor;
  }
  return std::nullopt;
}

void gptq_codes(const Matrix& w, const GptqFactor& factor, AffineMatrix& q) {
  const auto cols = static_cast<Eigen::Index>(q.cols);
  Matrix rest(w.rows(), cols);  // columns in the factor's order
  for (Eigen::Index p = 0; p < cols; ++p) {
    rest.col(p) = w.col(factor.order[static_cast<std::size_t>(p)]);
  }
  Matrix error(w.rows(), static_cast<Eigen::Index>(kTileColumns));
  std::vector<float> inverse(kTileColumns * kTileColumns);
  BlockTiles tiles;
  const TileKernels& kernels = tile_kernels();
  for (Eigen::Index end = cols; end > 0;) {
    const Eigen::Index count = std::min(end, static_cast<Eigen::Index>(kTileColumns));
    const Eigen::Index begin = end - count;
    const auto columns = static_cast<std::size_t>(count);
    for (std::size_t j = 0; j < columns; ++j) {
      std::copy_n(&factor.inverse(begin, begin + static_cast<Eigen::Index>(j)), j + 1,
                  &inverse[j * columns]);
    }
    const RoundBlock block{.columns = columns,
                           .factor = inverse.data(),
                           .scale = tiles.scale.data(),
                           .bias = tiles.bias.data(),
                           .max_code = q.max_code(),
                           .w = tiles.w.data(),
                           .codes = tiles.codes.data(),
                           .error = tiles.error.data()};
    for (Eigen::Index row = 0; row < w.rows(); row += static_cast<Eigen::Index>(kTileRows)) {
      for (std::size_t j = 0; j < columns; ++j) {
        const Eigen::Index p = begin + static_cast<Eigen::Index>(j);
        const std::uint32_t c = factor.order[static_cast<std::size_t>(p)];
        const auto group = static_cast<Eigen::Index>(c / q.group_size);
        std::copy_n(&rest(row, p), kTileRows, &tiles.w[j * kTileRows]);
        std::copy_n(&q.scale(row, group), kTileRows, &tiles.scale[j * kTileRows]);
        std::copy_n(&q.bias(row, group), kTileRows, &tiles.bias[j * kTileRows]);
      }
      kernels.round_block(block);
      for (std::size_t j = 0; j < columns; ++j) {
        const Eigen::Index p = begin + static_cast<Eigen::Index>(j);
        const std::uint32_t c = factor.order[static_cast<std::size_t>(p)];
        std::copy_n(&tiles.error[j * kTileRows], kTileRows,
                    &error(row, static_cast<Eigen::Index>(j)));
        std::uint8_t* codes = &q.codes(row, static_cast<Eigen::Index>(c));
        for (std::size_t i = 0; i < kTileRows; ++i) {
          codes[i] = static_cast<std::uint8_t>(tiles.codes[j * kTileRows + i]);
        }
      }
    }
    if (begin > 0) {
      subtract_product(error.leftCols(count), factor.inverse.block(0, begin, begin, count),
                       rest.leftCols(begin));
    }
    end = begin;
  }
}

}  // namespace moepack

#include "quant/refine.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "quant/tile.h"

namespace moepack {
namespace {

// One block of columns of one matrix on its way through the kernel.
class BlockRefiner {
 public:
  BlockRefiner(const Matrix& hessian, const RefineOptions& options, AffineMatrix& q, Matrix& off)
      : hessian_(hessian), q_(q), off_(off), gradient_(off.rows(), kColumns) {
    block_.group_size = q.group_size;
    block_.hessian = small_.data();
    block_.max_code = q.max_code();
    block_.rounds = options.rounds;
    block_.gradient = tile_gradient_.data();
    block_.codes = codes_.data();
    block_.scale = scale_.data();
    block_.bias = bias_.data();
    block_.change = change_.data();
  }

  // Refines the block that starts at `begin`. `before` gets its share of the objective as it was,
  // and `gain` how much of it was won.
  void run(Eigen::Index begin, double& before, double& gain) {
    const Eigen::Index count = std::min(kColumns, off_.cols() - begin);
    block_.columns = static_cast<std::size_t>(count);
    multiply(off_, hessian_.middleCols(begin, count), gradient_.leftCols(count));
    for (Eigen::Index j = 0; j < count; ++j) {
      std::copy_n(&hessian_(begin, begin + j), count, &small_[static_cast<std::size_t>(j * count)]);
      before += off_.col(begin + j).cast<double>().dot(gradient_.col(j).cast<double>());
    }
    for (Eigen::Index row = 0; row < off_.rows(); row += static_cast<Eigen::Index>(kTileRows)) {
      load_tile(row, begin);
      tile_kernels().refine_block(block_);
      gain += block_.gain;
      store_tile(row, begin);
    }
  }

 private:
  static constexpr auto kColumns = static_cast<Eigen::Index>(kTileColumns);

  void load_tile(Eigen::Index row, Eigen::Index begin) {
    for (std::size_t j = 0; j < block_.columns; ++j) {
      const auto column = static_cast<Eigen::Index>(j);
      std::copy_n(&gradient_(row, column), kTileRows, &tile_gradient_[j * kTileRows]);
      const std::uint8_t* codes = &q_.codes(row, begin + column);
      for (std::size_t i = 0; i < kTileRows; ++i) {
        codes_[j * kTileRows + i] = static_cast<float>(codes[i]);
      }
    }
    for (std::size_t g = 0; g < block_.columns / q_.group_size; ++g) {
      std::copy_n(&q_.scale(row, group_at(begin, g)), kTileRows, &scale_[g * kTileRows]);
      std::copy_n(&q_.bias(row, group_at(begin, g)), kTileRows, &bias_[g * kTileRows]);
    }
  }

  void store_tile(Eigen::Index row, Eigen::Index begin) {
    for (std::size_t j = 0; j < block_.columns; ++j) {
      const Eigen::Index column = begin + static_cast<Eigen::Index>(j);
      std::uint8_t* codes = &q_.codes(row, column);
      float* off = &off_(row, column);
      for (std::size_t i = 0; i < kTileRows; ++i) {
        codes[i] = static_cast<std::uint8_t>(codes_[j * kTileRows + i]);
        off[i] += change_[j * kTileRows + i];
      }
    }
    for (std::size_t g = 0; g < block_.columns / q_.group_size; ++g) {
      std::copy_n(&scale_[g * kTileRows], kTileRows, &q_.scale(row, group_at(begin, g)));
      std::copy_n(&bias_[g * kTileRows], kTileRows, &q_.bias(row, group_at(begin, g)));
    }
  }

  Eigen::Index group_at(Eigen::Index begin, std::size_t g) const {
    return static_cast<Eigen::Index>(static_cast<std::size_t>(begin) / q_.group_size + g);
  }

  const Matrix& hessian_;
  AffineMatrix& q_;
  Matrix& off_;      // stored - wanted
  Matrix gradient_;  // off * hessian, columns of the block
  RefineBlock block_;
  std::array<float, kTileColumns * kTileColumns> small_;
  std::array<float, kTileColumns * kTileRows> tile_gradient_;
  std::array<float, kTileColumns * kTileRows> codes_;
  std::array<float, kTileColumns * kTileRows> change_;
  // There is one scale for each group, and a group has at least 32 columns.
  std::array<float, kTileColumns / 32 * kTileRows> scale_;
  std::array<float, kTileColumns / 32 * kTileRows> bias_;
};

}  // namespace

RefineResult refine(const Matrix& w, const Matrix& hessian, const RefineOptions& options,
                    AffineMatrix& q) {
  RefineResult result;
  Matrix off;
  stored_minus(q, w, off);
  const auto refiner = std::make_unique<BlockRefiner>(hessian, options, q, off);
  while (result.passes < options.passes) {
    double before = 0;
    double gain = 0;
    for (Eigen::Index begin = 0; begin < off.cols();
         begin += static_cast<Eigen::Index>(kTileColumns)) {
      refiner->run(begin, before, gain);
    }
    ++result.passes;
    result.objective = before - gain;
    if (!(gain >= options.least_gain * before)) break;
  }
  return result;
}

}  // namespace moepack

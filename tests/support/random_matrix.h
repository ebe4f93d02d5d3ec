// Weights and inputs as the quantizer meets them: heavy tails, correlated inputs of uneven size.
#pragma once

#include <cmath>
#include <random>

#include "quant/affine_matrix.h"
#include "quant/linear_algebra.h"

namespace moepack::testing {

// Weights [padded rows, cols] of Student's t distribution with 6 degrees of freedom; the padding is
// zero.
inline Matrix random_weights(std::size_t rows, std::size_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::student_t_distribution<float> t(6);
  Matrix w =
      Matrix::Zero(static_cast<Eigen::Index>(padded_rows(rows)), static_cast<Eigen::Index>(cols));
  for (Eigen::Index c = 0; c < w.cols(); ++c) {
    for (Eigen::Index r = 0; r < static_cast<Eigen::Index>(rows); ++r) w(r, c) = 0.02F * t(random);
  }
  return w;
}

// Inputs [cols, samples], one in each column.
inline Matrix random_inputs(std::size_t cols, std::size_t samples, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto n = static_cast<Eigen::Index>(cols);
  Matrix mix = Matrix::NullaryExpr(n, n, [&] { return 0.3F * normal(random); });
  mix /= std::sqrt(static_cast<float>(cols));
  mix.diagonal().array() += 1.0F;
  Matrix x =
      Matrix::NullaryExpr(n, static_cast<Eigen::Index>(samples), [&] { return normal(random); });
  const Matrix size = Matrix::NullaryExpr(n, 1, [&] { return std::exp(0.7F * normal(random)); });
  Matrix out(n, x.cols());
  multiply(mix, x, out);
  return size.col(0).asDiagonal() * out;
}

// The mean of x x^T over the columns of x, plus a little on the diagonal.
inline Matrix hessian_of(const Matrix& x) {
  Matrix h = Matrix::Zero(x.rows(), x.rows());
  add_gram(x, h);
  mirror_upper(h);
  return h / static_cast<float>(x.cols());
}

// tr(E H E^T) of stored - w, in double.
inline double objective(const AffineMatrix& q, const Matrix& w, const Matrix& hessian) {
  Matrix off;
  stored_minus(q, w, off);
  const Eigen::MatrixXd e = off.topRows(static_cast<Eigen::Index>(q.rows)).cast<double>();
  return (e * hessian.cast<double>()).cwiseProduct(e).sum();
}

}  // namespace moepack::testing

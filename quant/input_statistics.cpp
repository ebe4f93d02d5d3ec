#include "quant/input_statistics.h"

#include <cassert>
#include <cmath>

namespace moepack {

GramSum::GramSum(std::size_t n)
    : sum_(Matrix::Zero(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n))) {}

void GramSum::add(const Eigen::Ref<const Matrix>& x, double weight) {
  assert(!is_mean_);
  add_gram(x, sum_);
  weight_ += weight;
}

const Matrix& GramSum::mean() {
  if (!is_mean_ && weight_ > 0) sum_ *= static_cast<float>(1.0 / weight_);
  is_mean_ = true;
  return sum_;
}

void shrink(Matrix& own, double samples, const Matrix& prior, double strength) {
  const double total = samples + strength;
  if (!(total > 0)) return;
  const auto keep = static_cast<float>(samples / total);
  const auto lean = static_cast<float>(strength / total);
  for (Eigen::Index j = 0; j < own.cols(); ++j) {
    own.col(j).head(j + 1) = keep * own.col(j).head(j + 1) + lean * prior.col(j).head(j + 1);
  }
}

double output_energy(const Matrix& m, const InputStatistics& inputs) {
  if (inputs.held_out.cols() > 0) {
    Matrix y(m.rows(), inputs.held_out.cols());
    multiply(m, inputs.held_out, y);
    return static_cast<double>(y.squaredNorm());
  }
  Matrix product(m.rows(), m.cols());
  multiply(m, inputs.hessian, product);
  return static_cast<double>(product.cwiseProduct(m).sum());
}

void swiglu_outputs(const Matrix& gate, const Matrix& up, std::size_t rows, const Matrix& x,
                    Matrix& out) {
  Matrix g(gate.rows(), x.cols());
  Matrix u(up.rows(), x.cols());
  multiply(gate, x, g);
  multiply(up, x, u);
  const auto top = static_cast<Eigen::Index>(rows);
  out = g.topRows(top).unaryExpr([](float v) { return v / (1.0F + std::exp(-v)); });
  out.array() *= u.topRows(top).array();
}

}  // namespace moepack

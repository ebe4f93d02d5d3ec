#include "quant/input_statistics.h"

#include <cassert>
#include <cmath>

namespace moepack {
namespace {

// How many samples a prior counts as.
constexpr double kPriorStrength = 256;
// How many samples the diagonal counts as, for each column of the matrix.
constexpr double kDiagonalStrength = 4;

}  // namespace

GramSum::GramSum(std::size_t n)
    : sum_(Matrix::Zero(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n))) {}

void GramSum::add(const Eigen::Ref<const Matrix>& x, double weight) {
  assert(!is_mean_);
  add_gram(x, sum_);
  weight_ += weight;
}

const Matrix& GramSum::mean() {
  if (!is_mean_ && weight() > 0) sum_ *= static_cast<float>(1.0 / weight_);
  is_mean_ = true;
  return sum_;
}

Shrinkage shrinkage(double samples, double prior_samples, std::size_t width) {
  Shrinkage out;
  out.own = samples / (samples + kPriorStrength);
  out.prior = 1 - out.own;
  // The number of samples that a mean of the two is worth.
  const double variance = (samples > 0 ? out.own * out.own / samples : 0) +
                          (prior_samples > 0 ? out.prior * out.prior / prior_samples : 0);
  const double pull = kDiagonalStrength * static_cast<double>(width) * variance;
  out.diagonal = variance > 0 ? pull / (1 + pull) : 1;
  return out;
}

Shrinkage shrinkage_alone(double samples, Eigen::Index width) {
  const double pull = kDiagonalStrength * static_cast<double>(width) / samples;
  return {.own = 1, .prior = 0, .diagonal = samples > 0 ? pull / (1 + pull) : 1};
}

void blend(Matrix& own, const Matrix& prior, const Shrinkage& shrinkage) {
  const auto a = static_cast<float>(shrinkage.own);
  const auto b = static_cast<float>(shrinkage.prior);
  own = a * own + b * prior;
}

void draw_to_diagonal(Matrix& m, const Matrix& diagonal, const Shrinkage& shrinkage) {
  m *= static_cast<float>(1 - shrinkage.diagonal);
  m.diagonal() += static_cast<float>(shrinkage.diagonal) * diagonal.col(0);
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

float activated(ExpertActivation activation, float gate) {
  // gelu's tanh form (arXiv 1606.08415 section 2): 0.5 (1 + tanh(z)) is sigmoid(2 z).
  constexpr float kSlope = 1.5957691216057308F;  // 2 sqrt(2 / pi)
  const float exponent = activation == ExpertActivation::kGeGlu
                             ? kSlope * (gate + 0.044715F * (gate * gate * gate))
                             : gate;
  return gate / (1.0F + std::exp(-exponent));
}

void gated_outputs(ExpertActivation activation, const Matrix& gate, const Matrix& up,
                   std::size_t rows, const Matrix& x, Matrix& out) {
  Matrix g(gate.rows(), x.cols());
  Matrix u(up.rows(), x.cols());
  multiply(gate, x, g);
  multiply(up, x, u);
  const auto top = static_cast<Eigen::Index>(rows);
  out = g.topRows(top).unaryExpr([=](float v) { return activated(activation, v); });
  out.array() *= u.topRows(top).array();
}

}  // namespace moepack

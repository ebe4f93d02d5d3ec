// What quantization needs to know about the inputs of a matrix: their Hessian and some held-out
// inputs to judge the result by.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/config/layer_spec.h"
#include "quant/linear_algebra.h"

namespace moepack {

struct InputStatistics {
  bool is_known = false;      // false: nothing is known, everything below is empty
  std::uint64_t samples = 0;  // tokens that chose the expert
  Matrix hessian;             // [n, n], symmetric: weighted mean of x x^T, shrunk to the layer's
  // [n, k]: inputs that the Hessian has not seen, each times the square root of its weight. Where
  // it is empty, the Hessian itself is the judge.
  Matrix held_out;
  std::vector<float> held_out_weights;  // [k]
  // [rows, k]: what the matrix should give for held_out. Where it is empty, that is what the
  // original weights give.
  Matrix wanted;
};

// Adds up weighted x x^T. Used by one thread.
class GramSum {
 public:
  explicit GramSum(std::size_t n);
  // x: [n, k], each column times the square root of its weight; `weight`: the sum of the weights.
  void add(const Eigen::Ref<const Matrix>& x, double weight);
  // The sum of the weights, or 0 where it is so small that its reciprocal would overflow.
  double weight() const { return weight_ > 1e-30 ? weight_ : 0; }
  // sum / weight in the upper triangle, the lower one undefined; zero where nothing was added.
  const Matrix& mean();

 private:
  Matrix sum_;
  double weight_ = 0;
  bool is_mean_ = false;
};

// How far a Hessian of few samples is drawn to one of many, and both to their diagonal: off the
// diagonal an estimate from k samples is noise of the order of 1 / sqrt(k), and GPTQ would make use
// of the noise.
struct Shrinkage {
  double own = 1;       // share of the samples' own mean
  double prior = 0;     // share of the prior's; own + prior = 1
  double diagonal = 0;  // share that off-diagonal elements lose
};

// The shrinkage of a Hessian of `samples` samples, [width, width], towards a prior of
// `prior_samples` samples.
// Sources: shrinkage to a common covariance (Friedman, Regularized Discriminant Analysis, 1989) and
// to the diagonal (Ledoit and Wolf, 2004); strengths measured, docs/decisions.md.
Shrinkage shrinkage(double samples, double prior_samples, std::size_t width);

// The shrinkage of a Hessian that has no prior.
Shrinkage shrinkage_alone(double samples, Eigen::Index width);

// own <- s.own * own + s.prior * prior, with s the shrinkage. Both are whole matrices, or both
// upper triangles.
void blend(Matrix& own, const Matrix& prior, const Shrinkage& shrinkage);
// m <- (1 - s.diagonal) m + s.diagonal * diag(diagonal), for all of a square matrix.
void draw_to_diagonal(Matrix& m, const Matrix& diagonal, const Shrinkage& shrinkage);

// tr(m H m^T) for m [rows, n], computed by held-out inputs where there are some, else by the
// Hessian.
double output_energy(const Matrix& m, const InputStatistics& inputs);

// What a gate's output becomes before it is multiplied with up's: silu, or for kGeGlu gelu.
float activated(ExpertActivation activation, float gate);
// out = activated(gate x) * (up x), the inputs of down_proj. gate, up: [padded rows, n]; x: [n, k];
// out: [rows, k].
void gated_outputs(ExpertActivation activation, const Matrix& gate, const Matrix& up,
                   std::size_t rows, const Matrix& x, Matrix& out);

}  // namespace moepack

// What quantization needs to know about the inputs of a matrix: their Hessian and some held-out
// inputs to judge the result by.
#pragma once

#include <cstdint>

#include "quant/linear_algebra.h"

namespace moepack {

struct InputStatistics {
  bool is_known = false;      // false: nothing is known, everything below is empty
  std::uint64_t samples = 0;  // tokens that chose the expert
  Matrix hessian;             // [n, n], symmetric: weighted mean of x x^T, shrunk to the layer's
  // [n, k]: inputs that the Hessian has not seen, each times the square root of its weight. Empty:
  // there are none, the Hessian itself is the judge.
  Matrix held_out;
  // [rows, k]: what the matrix should give for held_out. Empty: what its original weights give.
  Matrix wanted;
};

// Adds up weighted x x^T.
class GramSum {
 public:
  explicit GramSum(std::size_t n);
  // x: [n, k], a column times the square root of its weight; `weight` the sum of the weights.
  void add(const Eigen::Ref<const Matrix>& x, double weight);
  double weight() const { return weight_; }
  // sum / weight in the upper triangle, the lower one undefined; zero where nothing was added.
  const Matrix& mean();

 private:
  Matrix sum_;
  double weight_ = 0;
  bool is_mean_ = false;
};

// own <- (samples * own + strength * prior) / (samples + strength), upper triangles: a Hessian of
// few samples leans on one of many.
void shrink(Matrix& own, double samples, const Matrix& prior, double strength);

// tr(m H m^T): by held-out inputs where there are some, else by the Hessian. m: [rows, n].
double output_energy(const Matrix& m, const InputStatistics& inputs);

// out = silu(gate x) * (up x), the inputs of down_proj. gate, up: [padded rows, n]; x: [n, k];
// out: [rows, k].
void swiglu_outputs(const Matrix& gate, const Matrix& up, std::size_t rows, const Matrix& x,
                    Matrix& out);

}  // namespace moepack

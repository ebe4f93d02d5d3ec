#include "convert/quantize/quantize_estimate.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "formats/base/elapsed.h"
#include "quant/quantize_matrix.h"

namespace moepack {
namespace {

// The products of so many tokens are timed.
constexpr Eigen::Index kProbeTokens = 512;

Matrix random_matrix(std::size_t rows, std::size_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix m(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols));
  for (float& x : m.reshaped()) x = uniform(random);
  return m;
}

InputStatistics random_inputs(const Matrix& x) {
  InputStatistics inputs;
  inputs.is_known = true;
  inputs.hessian = Matrix::Zero(x.rows(), x.rows());
  add_gram(x, inputs.hessian);
  mirror_upper(inputs.hessian);
  inputs.held_out = x.leftCols(std::min<Eigen::Index>(x.cols(), 256));
  return inputs;
}

// Seconds for one matrix [rows, cols] whose Hessian's factor is shared by `sharing` matrices.
double matrix_seconds(const QuantizeOptions& options, std::size_t rows, std::size_t cols,
                      std::uint32_t bits, bool calibrated, int sharing) {
  const Matrix w = random_matrix(padded_rows(rows), cols, 1);
  InputStatistics inputs;
  if (calibrated) inputs = random_inputs(random_matrix(cols, kProbeTokens, 2));
  auto start = Clock::now();
  std::optional<GptqFactor> factor;
  if (calibrated && options.method == QuantMethod::kGptq) {
    factor = factor_hessian(inputs.hessian, kGptqDamping);
  }
  double seconds = seconds_since(start) / sharing;
  start = Clock::now();
  quantize_matrix(options.method, w, w, rows, {.bits = bits, .group_size = options.group_size},
                  inputs, factor.has_value() ? &*factor : nullptr);
  return seconds + seconds_since(start);
}

// Seconds that an expert's statistics take for one of its tokens.
double token_seconds(std::size_t hidden, std::size_t width) {
  const Matrix x = random_matrix(hidden, kProbeTokens, 3);
  const Matrix gate = random_matrix(padded_rows(width), hidden, 4);
  const auto start = Clock::now();
  Matrix u;
  gated_outputs(ExpertActivation::kSwiGlu, gate, gate, width, x, u);
  Matrix wide = Matrix::Zero(static_cast<Eigen::Index>(hidden), static_cast<Eigen::Index>(hidden));
  Matrix narrow = Matrix::Zero(static_cast<Eigen::Index>(width), static_cast<Eigen::Index>(width));
  add_gram(x, wide);
  add_gram(u, narrow);
  return seconds_since(start) / static_cast<double>(kProbeTokens);
}

}  // namespace

double estimate_quantize_seconds(const QuantizePlan& plan, const QuantizeOptions& options,
                                 std::size_t threads) {
  const std::size_t hidden = plan.config.hidden_size;
  const std::size_t width = plan.config.expert_width;
  const bool calibrated = plan.calibration != nullptr;
  double expert = 2 * matrix_seconds(options, width, hidden, options.gate_up_bits, calibrated, 2) +
                  matrix_seconds(options, hidden, width, options.down_bits, calibrated, 1);
  if (calibrated) {
    const auto first = std::find_if(plan.pack.layers.begin(), plan.pack.layers.end(),
                                    [](const LayerEntry& l) { return !l.experts.empty(); });
    const std::vector<std::uint64_t> samples =
        plan.calibration->samples(static_cast<std::uint32_t>(first - plan.pack.layers.begin()));
    const double uses =
        static_cast<double>(std::accumulate(samples.begin(), samples.end(), std::uint64_t{0}));
    // An expert has its own tokens, and those of the layer on which down leans.
    const double tokens = uses / static_cast<double>(plan.config.num_experts) + kProbeTokens;
    expert += tokens * token_seconds(hidden, width);
  }
  auto experts = static_cast<double>(plan.pack.all_experts());
  // Taking records over costs next to nothing.
  for (const std::uint32_t reused : plan.reused) experts -= static_cast<double>(reused);
  return expert * experts / static_cast<double>(threads);
}

}  // namespace moepack

#include "quant/expert_statistics.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

// How many tokens of the layer make up the prior of down.
constexpr std::size_t kPriorTokens = 512;
// How many tokens are gathered at once.
constexpr std::size_t kBlockTokens = 512;
// At most this many held-out tokens are used. An expert with fewer than kFewHeldOut gets more of
// them from all over the layer.
constexpr std::size_t kMostHeldOut = 512;
constexpr std::size_t kFewHeldOut = 16;
constexpr std::size_t kBorrowedHeldOut = 64;
// Columns of the layer's Hessian that one task adds to.
constexpr Eigen::Index kPanelColumns = 128;
// What is added to the diagonals, as a share of their mean, to solve for the target of down.
constexpr float kTargetDamping = 0.01F;

// At most `most` of the samples, taken evenly from all of them.
std::vector<InputSample> thinned(std::span<const InputSample> samples, std::size_t most) {
  const std::size_t count = std::min(samples.size(), most);
  std::vector<InputSample> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = samples[i * samples.size() / count];
  return out;
}

// The inputs by which an expert is judged. An expert that saw little is also judged by tokens of
// others.
std::vector<InputSample> judges(const LayerInputs& inputs, std::uint32_t expert) {
  std::vector<InputSample> out = thinned(inputs.held_out(expert), kMostHeldOut);
  if (out.size() >= kFewHeldOut) return out;
  double mean = 1;
  if (!out.empty()) {
    mean = 0;
    for (const InputSample& s : out)
      mean += static_cast<double>(s.weight) / static_cast<double>(out.size());
  }
  for (InputSample s : inputs.layer_held_out(kBorrowedHeldOut)) {
    s.weight = static_cast<float>(mean);
    out.push_back(s);
  }
  return out;
}

std::vector<float> weights_of(std::span<const InputSample> samples) {
  std::vector<float> out;
  for (const InputSample& s : samples) out.push_back(s.weight);
  return out;
}

// Calls use(x, weight) for blocks of samples.
template <typename Use>
void for_blocks(const LayerInputs& inputs, std::span<const InputSample> samples, const Use& use) {
  Matrix x;
  for (std::size_t at = 0; at < samples.size(); at += kBlockTokens) {
    const auto block = samples.subspan(at, std::min(kBlockTokens, samples.size() - at));
    const double weight = inputs.gather(block, x);
    use(x, weight);
  }
}

// The inputs of down for some tokens, by the original gate and up and by the stored ones, each
// times the square root of its weight.
struct DownInputs {
  Matrix original;
  Matrix stored;
};

class DownCollector {
 public:
  DownCollector(const LayerInputs& inputs, const ExpertMatrices& weights, const Matrix& stored_gate,
                const Matrix& stored_up)
      : inputs_(inputs), weights_(weights), gate_(stored_gate), up_(stored_up) {}

  DownInputs of(std::span<const InputSample> samples) const {
    // Weights come last: the network in between is not linear.
    std::vector<InputSample> plain(samples.begin(), samples.end());
    for (InputSample& s : plain) s.weight = 1;
    Matrix x;
    inputs_.gather(plain, x);
    DownInputs out;
    gated_outputs(weights_.activation, weights_.gate, weights_.up, weights_.width, x, out.original);
    gated_outputs(weights_.activation, gate_, up_, weights_.width, x, out.stored);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const float factor = std::sqrt(samples[i].weight);
      out.original.col(static_cast<Eigen::Index>(i)) *= factor;
      out.stored.col(static_cast<Eigen::Index>(i)) *= factor;
    }
    return out;
  }

  // Forms the means of stored stored^T (upper triangle) and of original stored^T. Gives their
  // weight.
  double means(std::span<const InputSample> samples, Matrix& hessian, Matrix& cross) const {
    const auto width = static_cast<Eigen::Index>(weights_.width);
    GramSum sum(weights_.width);
    cross = Matrix::Zero(width, width);
    for (std::size_t at = 0; at < samples.size(); at += kBlockTokens) {
      const auto block = samples.subspan(at, std::min(kBlockTokens, samples.size() - at));
      const DownInputs u = of(block);
      sum.add(u.stored, weight_of(block));
      add_product(u.original, u.stored, cross);
    }
    if (sum.weight() > 0) cross *= static_cast<float>(1.0 / sum.weight());
    hessian = sum.mean();
    return sum.weight();
  }

 private:
  static double weight_of(std::span<const InputSample> samples) {
    double weight = 0;
    for (const InputSample& s : samples) weight += static_cast<double>(s.weight);
    return weight;
  }

  const LayerInputs& inputs_;
  const ExpertMatrices& weights_;
  const Matrix& gate_;
  const Matrix& up_;
};

// down * (cross + a little) * (hessian + a little)^-1. What is added makes columns with little
// input stay as they are. Gives `down` itself where the inverse cannot be formed.
Matrix nearest_weights(const Matrix& down, const Matrix& hessian, Matrix cross) {
  const float little = kTargetDamping * hessian.diagonal().mean();
  Matrix inverse = hessian;
  inverse.diagonal().array() += little;
  cross.diagonal().array() += little;
  // With hessian = C^T C its inverse is C^-1 C^-T.
  if (!invert_cholesky(inverse)) return down;
  inverse.triangularView<Eigen::StrictlyLower>().setZero();
  Matrix step(down.rows(), down.cols());
  Matrix half(down.rows(), down.cols());
  multiply(down, cross, half);
  multiply(half, inverse, step);
  half.setZero();
  add_product(step, inverse, half);
  return half;
}

}  // namespace

LayerHessian layer_hessian(const LayerInputs& inputs, std::size_t tokens,
                           const ParallelFor& parallel) {
  const auto width = static_cast<Eigen::Index>(inputs.hidden_size());
  const Eigen::Index panels = (width + kPanelColumns - 1) / kPanelColumns;
  LayerHessian out{.mean = Matrix::Zero(width, width), .samples = 0};
  for_blocks(inputs, inputs.layer_training(tokens), [&](const Matrix& x, double weight) {
    parallel(static_cast<std::size_t>(panels), [&](std::size_t panel) {
      const auto begin = static_cast<Eigen::Index>(panel) * kPanelColumns;
      const Eigen::Index count = std::min(kPanelColumns, width - begin);
      add_product(x.topRows(begin + count), x.middleRows(begin, count),
                  out.mean.block(0, begin, begin + count, count));
    });
    out.samples += weight;
  });
  if (out.samples > 0) out.mean *= static_cast<float>(1.0 / out.samples);
  return out;
}

InputStatistics gate_up_statistics(const LayerInputs& inputs, const LayerHessian& layer,
                                   std::uint32_t expert) {
  GramSum sum(inputs.hidden_size());
  const std::span<const InputSample> training = inputs.training(expert);
  for_blocks(inputs, training, [&](const Matrix& x, double weight) { sum.add(x, weight); });
  const double own = sum.weight() > 0 ? static_cast<double>(training.size()) : 0;
  const Shrinkage shrunk = shrinkage(own, layer.samples, inputs.hidden_size());
  InputStatistics out;
  out.is_known = true;
  out.samples = inputs.samples(expert);
  out.hessian = sum.mean();
  blend(out.hessian, layer.mean, shrunk);
  mirror_upper(out.hessian);
  draw_to_diagonal(out.hessian, out.hessian.diagonal(), shrunk);
  const std::vector<InputSample> judging = judges(inputs, expert);
  inputs.gather(judging, out.held_out);
  out.held_out_weights = weights_of(judging);
  return out;
}

DownProblem down_problem(const LayerInputs& inputs, const ExpertMatrices& weights,
                         const Matrix& stored_gate, const Matrix& stored_up, std::uint32_t expert) {
  const DownCollector collector(inputs, weights, stored_gate, stored_up);
  const std::span<const InputSample> training = inputs.training(expert);
  const std::vector<InputSample> common = inputs.layer_training(kPriorTokens);
  DownProblem out;
  Matrix cross;
  Matrix prior;
  Matrix prior_cross;
  const double weight = collector.means(training, out.inputs.hessian, cross);
  collector.means(common, prior, prior_cross);
  const double own = weight > 0 ? static_cast<double>(training.size()) : 0;
  const Shrinkage shrunk = shrinkage(own, static_cast<double>(common.size()), weights.width);
  blend(out.inputs.hessian, prior, shrunk);
  blend(cross, prior_cross, shrunk);
  mirror_upper(out.inputs.hessian);
  // On the diagonal the stored inputs count as the original ones: without samples the target is
  // down itself.
  const Matrix diagonal = out.inputs.hessian.diagonal();
  draw_to_diagonal(out.inputs.hessian, diagonal, shrunk);
  draw_to_diagonal(cross, diagonal, shrunk);
  out.target = nearest_weights(weights.down, out.inputs.hessian, cross);
  out.inputs.is_known = true;
  out.inputs.samples = inputs.samples(expert);
  const std::vector<InputSample> judging = judges(inputs, expert);
  DownInputs judged = collector.of(judging);
  out.inputs.wanted.resize(weights.down.rows(), judged.original.cols());
  multiply(weights.down, judged.original, out.inputs.wanted);
  out.inputs.held_out = std::move(judged.stored);
  out.inputs.held_out_weights = weights_of(judging);
  return out;
}

}  // namespace moepack

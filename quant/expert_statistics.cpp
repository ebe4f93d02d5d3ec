#include "quant/expert_statistics.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

// How many samples the layer's Hessian counts as.
constexpr double kPriorStrength = 256;
// Tokens of the layer that make up the prior of down.
constexpr std::size_t kPriorTokens = 512;
// Tokens gathered at once.
constexpr std::size_t kBlockTokens = 512;
// Held-out tokens that are used at most; and that are filled up to from all over the layer when an
// expert has fewer than kFewHeldOut.
constexpr std::size_t kMostHeldOut = 512;
constexpr std::size_t kFewHeldOut = 16;
constexpr std::size_t kBorrowedHeldOut = 64;
// Columns of the layer's Hessian that one task adds to.
constexpr Eigen::Index kPanelColumns = 128;
constexpr double kPriorPhase = 0.25;
constexpr double kHeldOutPhase = 0.75;

// Evenly from all of them.
std::vector<InputSample> thinned(std::span<const InputSample> samples, std::size_t most) {
  const std::size_t count = std::min(samples.size(), most);
  std::vector<InputSample> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = samples[i * samples.size() / count];
  return out;
}

// The inputs that judge an expert. One that saw little is judged by tokens of others, too.
std::vector<InputSample> judges(const LayerInputs& inputs, std::uint32_t expert) {
  std::vector<InputSample> out = thinned(inputs.held_out(expert), kMostHeldOut);
  if (out.size() >= kFewHeldOut) return out;
  double mean = 1;
  if (!out.empty()) {
    mean = 0;
    for (const InputSample& s : out)
      mean += static_cast<double>(s.weight) / static_cast<double>(out.size());
  }
  for (InputSample s : inputs.spread(kBorrowedHeldOut, kHeldOutPhase)) {
    s.weight = static_cast<float>(mean);
    out.push_back(s);
  }
  return out;
}

// Calls use(x, weight) for blocks of samples.
template <typename Use>
void for_blocks(const LayerInputs& inputs, std::span<const InputSample> samples, const Use& use) {
  Matrix x;
  for (std::size_t at = 0; at < samples.size(); at += kBlockTokens) {
    const auto block = samples.subspan(at, std::min(kBlockTokens, samples.size() - at));
    const double weight = inputs.gather(block, x);
    use(block, x, weight);
  }
}

// Inputs without their weights' square roots, for what is not linear.
std::vector<InputSample> unweighted(std::span<const InputSample> samples) {
  std::vector<InputSample> out(samples.begin(), samples.end());
  for (InputSample& s : out) s.weight = 1;
  return out;
}

// The inputs of down for some tokens, each times the square root of its weight.
void down_inputs(const LayerInputs& inputs, const ExpertMatrices& weights,
                 std::span<const InputSample> samples, Matrix& out) {
  Matrix x;
  inputs.gather(unweighted(samples), x);
  swiglu_outputs(weights.gate, weights.up, weights.width, x, out);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    out.col(static_cast<Eigen::Index>(i)) *= std::sqrt(samples[i].weight);
  }
}

void add_down(const LayerInputs& inputs, const ExpertMatrices& weights,
              std::span<const InputSample> samples, GramSum& sum) {
  Matrix u;
  for (std::size_t at = 0; at < samples.size(); at += kBlockTokens) {
    const auto block = samples.subspan(at, std::min(kBlockTokens, samples.size() - at));
    down_inputs(inputs, weights, block, u);
    double weight = 0;
    for (const InputSample& s : block) weight += static_cast<double>(s.weight);
    sum.add(u, weight);
  }
}

InputStatistics finish(GramSum& own, double samples, const Matrix& prior) {
  InputStatistics out;
  out.is_known = true;
  out.hessian = own.mean();
  shrink(out.hessian, own.weight() > 0 ? samples : 0, prior, kPriorStrength);
  mirror_upper(out.hessian);
  return out;
}

}  // namespace

Matrix layer_hessian(const LayerInputs& inputs, std::size_t tokens, const ParallelFor& parallel) {
  const auto width = static_cast<Eigen::Index>(inputs.hidden_size());
  const Eigen::Index panels = (width + kPanelColumns - 1) / kPanelColumns;
  Matrix sum = Matrix::Zero(width, width);
  double total = 0;
  for_blocks(inputs, inputs.spread(tokens, kPriorPhase), [&](auto, const Matrix& x, double weight) {
    parallel(static_cast<std::size_t>(panels), [&](std::size_t panel) {
      const auto begin = static_cast<Eigen::Index>(panel) * kPanelColumns;
      const Eigen::Index count = std::min(kPanelColumns, width - begin);
      add_product(x.topRows(begin + count), x.middleRows(begin, count),
                  sum.block(0, begin, begin + count, count));
    });
    total += weight;
  });
  if (total > 0) sum *= static_cast<float>(1.0 / total);
  return sum;
}

InputStatistics gate_up_statistics(const LayerInputs& inputs, const Matrix& layer_hessian,
                                   std::uint32_t expert) {
  GramSum sum(inputs.hidden_size());
  const std::span<const InputSample> training = inputs.training(expert);
  for_blocks(inputs, training, [&](auto, const Matrix& x, double weight) { sum.add(x, weight); });
  InputStatistics out = finish(sum, static_cast<double>(training.size()), layer_hessian);
  out.samples = inputs.samples(expert);
  inputs.gather(judges(inputs, expert), out.held_out);
  return out;
}

InputStatistics down_statistics(const LayerInputs& inputs, const ExpertMatrices& weights,
                                std::uint32_t expert) {
  GramSum prior(weights.width);
  add_down(inputs, weights, inputs.spread(kPriorTokens, kPriorPhase), prior);
  GramSum sum(weights.width);
  const std::span<const InputSample> training = inputs.training(expert);
  add_down(inputs, weights, training, sum);
  InputStatistics out = finish(sum, static_cast<double>(training.size()), prior.mean());
  out.samples = inputs.samples(expert);
  down_inputs(inputs, weights, judges(inputs, expert), out.held_out);
  return out;
}

}  // namespace moepack

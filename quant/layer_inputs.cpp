#include "quant/layer_inputs.h"

#include <algorithm>
#include <cmath>

#include "formats/base/dtype.h"

namespace moepack {
namespace {

constexpr std::uint64_t kLongestRun = 64;
// A layer has at least this many runs, if it has as many tokens.
constexpr std::uint64_t kFewestRuns = 60;

// An output's error enters the layer's error times the router's weight, and counts by its square.
float error_weight(float router_weight) { return router_weight * router_weight; }

}  // namespace

LayerInputs::LayerInputs(const LayerActivations& activations, std::uint32_t num_experts)
    : activations_(&activations),
      run_(std::clamp<std::uint64_t>(activations.tokens / kFewestRuns, 1, kLongestRun)),
      samples_(activations.experts.size()),
      ranges_(num_experts) {
  const std::uint32_t top_k = activations.experts_per_token;
  std::vector<std::size_t> training(num_experts);
  std::vector<std::size_t> held(num_experts);
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    ++(is_held_out(i / top_k) ? held : training)[activations.experts[i]];
  }
  std::size_t next = 0;
  for (std::size_t e = 0; e < num_experts; ++e) {
    ranges_[e] = {next, next + training[e], next + training[e] + held[e]};
    next = ranges_[e].end;
  }
  std::vector<Range> at(ranges_);
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    Range& range = at[activations.experts[i]];
    std::size_t& place = is_held_out(i / top_k) ? range.held_out : range.begin;
    samples_[place++] = {.token = static_cast<std::uint32_t>(i / top_k),
                         .weight = error_weight(activations.weights[i])};
    mean_weight_ += static_cast<double>(error_weight(activations.weights[i]));
  }
  if (!samples_.empty()) mean_weight_ /= static_cast<double>(samples_.size());
}

std::span<const InputSample> LayerInputs::training(std::uint32_t expert) const {
  const Range& r = ranges_[expert];
  return std::span(samples_).subspan(r.begin, r.held_out - r.begin);
}

std::span<const InputSample> LayerInputs::held_out(std::uint32_t expert) const {
  const Range& r = ranges_[expert];
  return std::span(samples_).subspan(r.held_out, r.end - r.held_out);
}

ExpertUse LayerInputs::use(std::uint32_t expert) const {
  double weight = 0;
  const Range& r = ranges_[expert];
  for (std::size_t i = r.begin; i < r.end; ++i) weight += static_cast<double>(samples_[i].weight);
  const auto tokens = static_cast<double>(activations_->tokens);
  return {.share = static_cast<double>(samples(expert)) / tokens,
          .weight = weight / tokens,
          .one_more = mean_weight_ / tokens};
}

std::vector<InputSample> LayerInputs::spread(std::size_t count, bool held_out) const {
  std::vector<std::uint32_t> tokens;
  for (std::uint64_t t = 0; t < activations_->tokens; ++t) {
    if (is_held_out(t) == held_out) tokens.push_back(static_cast<std::uint32_t>(t));
  }
  count = std::min(count, tokens.size());
  std::vector<InputSample> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i].token = tokens[i * tokens.size() / count];
  return out;
}

std::vector<InputSample> LayerInputs::layer_training(std::size_t count) const {
  return spread(count, false);
}

std::vector<InputSample> LayerInputs::layer_held_out(std::size_t count) const {
  return spread(count, true);
}

double LayerInputs::gather(std::span<const InputSample> samples, Matrix& x) const {
  const std::size_t width = activations_->hidden_size;
  x.resize(static_cast<Eigen::Index>(width), static_cast<Eigen::Index>(samples.size()));
  double total = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint16_t* input = activations_->inputs.data() + samples[i].token * width;
    const float factor = std::sqrt(samples[i].weight);
    float* out = x.data() + i * width;
    for (std::size_t k = 0; k < width; ++k) out[k] = bf16_to_f32(input[k]) * factor;
    total += static_cast<double>(samples[i].weight);
  }
  return total;
}

}  // namespace moepack

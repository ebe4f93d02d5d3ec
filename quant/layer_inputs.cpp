#include "quant/layer_inputs.h"

#include <algorithm>
#include <cmath>

#include "formats/dtype.h"

namespace moepack {
namespace {

constexpr std::size_t kHeldOutEvery = 10;

// An output's error enters the layer's times the router's weight, and counts by its square.
float error_weight(float router_weight) { return router_weight * router_weight; }

}  // namespace

LayerInputs::LayerInputs(const LayerActivations& activations, std::uint32_t num_experts)
    : activations_(&activations), ranges_(num_experts) {
  const std::size_t uses = activations.experts.size();
  std::vector<std::size_t> count(num_experts);
  for (std::uint16_t e : activations.experts) ++count[e];
  std::size_t next = 0;
  for (std::size_t e = 0; e < num_experts; ++e) {
    ranges_[e] = {next, next + count[e] - count[e] / kHeldOutEvery, next + count[e]};
    next += count[e];
  }
  samples_.resize(uses);
  std::vector<Range> at(ranges_);
  std::fill(count.begin(), count.end(), 0);
  for (std::size_t i = 0; i < uses; ++i) {
    const std::uint16_t e = activations.experts[i];
    const bool held = ++count[e] % kHeldOutEvery == 0;
    std::size_t& place = held ? at[e].held_out : at[e].begin;
    samples_[place++] = {.token = static_cast<std::uint32_t>(i / activations.experts_per_token),
                         .weight = error_weight(activations.weights[i])};
  }
}

std::span<const InputSample> LayerInputs::training(std::uint32_t expert) const {
  const Range& r = ranges_[expert];
  return std::span(samples_).subspan(r.begin, r.held_out - r.begin);
}

std::span<const InputSample> LayerInputs::held_out(std::uint32_t expert) const {
  const Range& r = ranges_[expert];
  return std::span(samples_).subspan(r.held_out, r.end - r.held_out);
}

std::vector<InputSample> LayerInputs::spread(std::size_t count, double phase) const {
  const std::uint64_t tokens = activations_->tokens;
  count = std::min<std::uint64_t>(count, tokens);
  std::vector<InputSample> out(count);
  const double step = count == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double at = (static_cast<double>(i) + phase) * step;
    out[i].token = static_cast<std::uint32_t>(std::min(at, static_cast<double>(tokens - 1)));
  }
  return out;
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

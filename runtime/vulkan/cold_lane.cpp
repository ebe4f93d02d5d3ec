#include "runtime/vulkan/cold_lane.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

// Attention and logits are the device's: of a context of one position hardly anything is left.
ActivationLimits activation_limits(const ColdLaneLimits& limits) {
  return {.tokens = limits.rows,
          .threads = limits.threads,
          .context = 1,
          .logit_rows = 0,
          .activations = limits.activations};
}

MoeWeights routed_part(const MoeWeights& weights) {
  MoeWeights routed;
  routed.has_experts = weights.has_experts;
  routed.activation = weights.activation;
  routed.activation_limit = weights.activation_limit;
  routed.gate_bias = weights.gate_bias;
  routed.up_bias = weights.up_bias;
  routed.down_bias = weights.down_bias;
  return routed;
}

}  // namespace

std::uint64_t cold_lane_bytes(const ModelConfig& config, const ColdLaneLimits& limits) {
  const std::uint64_t norms = std::uint64_t{config.num_layers} * config.hidden_size * sizeof(float);
  return activation_bytes(config, activation_limits(limits)) + norms;
}

Result<std::unique_ptr<ColdLane>> ColdLane::create(const ModelConfig& config,
                                                   const ModelWeights& weights,
                                                   const Kernels& kernels,
                                                   const ColdLaneLimits& limits) {
  MOE_ASSIGN_OR_RETURN(Activations scratch, Activations::create(config, activation_limits(limits)));
  std::unique_ptr<ColdLane> lane(new ColdLane(config, std::move(scratch)));
  lane->compute_ = std::make_unique<Compute>(kernels, limits.threads, lane->scratch_.matmul_scratch,
                                             lane->scratch_.input_scratch());
  lane->moe_ = std::make_unique<MixtureOfExperts>(config, lane->scratch_);
  for (const LayerWeights& layer : weights.layers) {
    lane->layers_.push_back({.norm = layer.post_norm, .moe = routed_part(layer.moe)});
  }
  return lane;
}

Result<std::span<const float>> ColdLane::compute(std::uint32_t layer,
                                                 std::span<const Assignment> uses,
                                                 const float* hidden, std::size_t rows,
                                                 ExpertStore& store) {
  const Layer& weights = layers_[layer];
  const std::span<float> sums = scratch_.mixed.first(rows * hidden_size_);
  std::fill(sums.begin(), sums.end(), 0.0F);
  rms_norm(*compute_, hidden, weights.norm, eps_, rows, hidden_size_, scratch_.normed.data());
  moe_->take_choices(uses);
  const auto nothing = [] {};
  MOE_RETURN_IF_ERROR(moe_->forward(*compute_, weights.moe, layer, store, scratch_.normed.data(),
                                    rows, sums.data(), nothing));
  return std::span<const float>(sums);
}

}  // namespace moepack

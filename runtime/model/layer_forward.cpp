#include "runtime/model/layer_forward.h"

#include <algorithm>
#include <string>

#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

std::uint64_t widest_input(const ModelConfig& c) {
  return std::max({std::uint64_t{c.hidden_size}, std::uint64_t{c.expert_width},
                   std::uint64_t{c.shared_expert_width}, std::uint64_t{c.num_heads} * c.head_dim,
                   std::uint64_t{c.linear_value_heads} * c.linear_value_dim});
}

}  // namespace

LayerForward::LayerForward(const ModelConfig& config, const ModelWeights& weights,
                           const Kernels& kernels, std::size_t threads, std::size_t max_tokens,
                           std::uint64_t context)
    : config_(config),
      weights_(weights),
      width_(config.hidden_size),
      max_tokens_(max_tokens),
      compute_(kernels, threads, widest_input(config)),
      attention_(config, max_tokens, context, compute_.pool().size()),
      delta_(config, max_tokens),
      moe_(config, max_tokens) {
  normed_.resize(max_tokens * width_);
  mixed_.resize(max_tokens * width_);
}

Status LayerForward::embed(std::span<const std::int32_t> tokens, float* hidden) const {
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::int32_t id = tokens[t];
    if (id < 0 || static_cast<std::uint32_t>(id) >= config_.vocab_size) {
      return invalid_argument("token id " + std::to_string(id) + " at index " + std::to_string(t) +
                                  " is not in the vocabulary of " +
                                  std::to_string(config_.vocab_size),
                              "use ids made by this model's tokenizer");
    }
    decode_row(weights_.embedding, static_cast<std::uint64_t>(id),
               std::span(hidden + t * width_, width_));
  }
  return Status::ok();
}

std::span<const float> LayerForward::mix(std::uint32_t index, LayerState& state,
                                         std::size_t position, std::size_t tokens, float* hidden) {
  const LayerWeights& layer = weights_.layers[index];
  rms_norm(compute_, hidden, layer.input_norm, config_.rms_norm_eps, tokens, width_,
           normed_.data());
  if (const auto* attention = std::get_if<FullAttentionWeights>(&layer.mixer)) {
    attention_.forward(compute_, *attention, state, position, normed_.data(), tokens,
                       mixed_.data());
  } else {
    delta_.forward(compute_, std::get<DeltaNetWeights>(layer.mixer), state, normed_.data(), tokens,
                   mixed_.data());
  }
  for (std::size_t i = 0; i < tokens * width_; ++i) hidden[i] += mixed_[i];
  rms_norm(compute_, hidden, layer.post_norm, config_.rms_norm_eps, tokens, width_, normed_.data());
  mixed_tokens_ = tokens;
  return moe_.route_logits(compute_, layer.moe, normed_.data(), tokens);
}

Status LayerForward::add_experts(std::uint32_t index, ExpertStore& store, float* hidden) {
  const std::size_t count = mixed_tokens_ * width_;
  std::fill_n(mixed_.begin(), count, 0.0F);
  MOE_RETURN_IF_ERROR(moe_.forward(compute_, weights_.layers[index].moe, index, store,
                                   normed_.data(), mixed_tokens_, mixed_.data()));
  for (std::size_t i = 0; i < count; ++i) hidden[i] += mixed_[i];
  return Status::ok();
}

void LayerForward::expert_input(std::uint32_t index, const float* hidden, float* out) {
  rms_norm(compute_, hidden, weights_.layers[index].post_norm, config_.rms_norm_eps, 1, width_,
           out);
}

}  // namespace moepack

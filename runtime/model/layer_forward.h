// The layers of a model, over any number of tokens, in halves: the mixer with the router's logits,
// and the mixture of experts. The one place where a layer is computed; Engine runs all layers of a
// few tokens with it, CorpusForward all tokens through one layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/compute.h"
#include "runtime/model/delta_net.h"
#include "runtime/model/full_attention.h"
#include "runtime/model/kernels.h"
#include "runtime/model/model_state.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/moe.h"
#include "runtime/store/expert_store.h"

namespace moepack {

class LayerForward {
 public:
  // `config` and `weights` outlive the object. Scratch for `max_tokens` tokens a call, of contexts
  // of at most `context` tokens.
  LayerForward(const ModelConfig& config, const ModelWeights& weights, const Kernels& kernels,
               std::size_t threads, std::size_t max_tokens, std::uint64_t context);
  LayerForward(const LayerForward&) = delete;
  LayerForward& operator=(const LayerForward&) = delete;

  std::size_t max_tokens() const { return max_tokens_; }
  Compute& compute() { return compute_; }
  MixtureOfExperts& experts() { return moe_; }

  // hidden[t] = embedding of tokens[t]; hidden: [tokens, H]. An id that is not in the vocabulary is
  // kInvalidArgument with its index.
  Status embed(std::span<const std::int32_t> tokens, float* hidden) const;

  // First half of layer `index`: hidden += mixer(norm(hidden)), for tokens at positions [position,
  // position + tokens) of `state`; then expert_inputs() = post-attention norm of hidden. Gives the
  // router's logits, [tokens, num_experts]; both stay until the next call.
  std::span<const float> mix(std::uint32_t index, LayerState& state, std::size_t position,
                             std::size_t tokens, float* hidden);
  // [tokens, H] of the last mix().
  std::span<const float> expert_inputs() const { return {normed_.data(), mixed_tokens_ * width_}; }
  // Second half, of the tokens of the last mix(): hidden += experts(expert_inputs()).
  Status add_experts(std::uint32_t index, ExpertStore& store, float* hidden);

  // The post-attention norm of one row, as mix() computes it. From any thread.
  void expert_input(std::uint32_t index, const float* hidden, float* out);

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  std::size_t width_;
  std::size_t max_tokens_;
  Compute compute_;
  FullAttention attention_;
  DeltaNet delta_;
  MixtureOfExperts moe_;
  std::size_t mixed_tokens_ = 0;  // of the last mix()
  std::vector<float> normed_;     // [max_tokens, H]
  std::vector<float> mixed_;      // [max_tokens, H]
};

}  // namespace moepack

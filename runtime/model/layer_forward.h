// The layers of a model, over any number of tokens, in halves: the mixer with the router's logits,
// and the mixture of experts. The one place where a layer is computed; Engine runs all layers of a
// few tokens with it, CorpusForward all tokens through one layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/compute.h"
#include "runtime/model/delta_net.h"
#include "runtime/model/full_attention.h"
#include "runtime/model/kernels.h"
#include "runtime/model/latent_attention.h"
#include "runtime/model/layer_slice.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/moe.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// One thread at a time calls it, but for expert_input(); the work is shared among the threads of
// its pool.
class LayerForward {
 public:
  // `config` and `weights` outlive the object. `activations` were made for this configuration and
  // these limits.
  LayerForward(const ModelConfig& config, const ModelWeights& weights, const Kernels& kernels,
               const ActivationLimits& limits, Activations activations);
  LayerForward(const LayerForward&) = delete;
  LayerForward& operator=(const LayerForward&) = delete;

  std::size_t max_tokens() const { return max_tokens_; }
  const Kernels& kernels() const { return compute_.kernels(); }
  Compute& compute() { return compute_; }
  Activations& activations() { return scratch_; }
  MixtureOfExperts& experts() { return moe_; }

  // hidden[t] = embedding of tokens[t]; hidden: [tokens, H]. The ids are in the vocabulary.
  void embed(std::span<const std::int32_t> tokens, float* hidden);

  // First half of layer `index` for a batch of `tokens` rows: hidden += mixer(norm(hidden)), the
  // mixer's result normed where the layer says so, for the rows of live slices, zero for all
  // others; then expert_inputs() = the norm before the routed experts, or the network, of hidden.
  // Gives the router's logits, [tokens, num_experts], or none where the layer has no experts; both
  // stay until the next call. A slice ends (gets a status) when its state finds no memory.
  std::span<const float> mix(std::uint32_t index, std::span<const LayerSlice> slices,
                             std::size_t tokens, float* hidden);
  // [tokens, H] of the last mix().
  std::span<const float> expert_inputs() const {
    return scratch_.normed.first(mixed_tokens_ * width_);
  }
  // Takes rows [first, first + count) out of the last mix(): what experts and router see of them
  // becomes zero.
  void silence(std::size_t first, std::size_t count);
  // Second half of a layer with experts, of the tokens of the last mix(), after experts().choose():
  // hidden += network of hidden, as MixtureOfExperts::forward() says. `last_reads`:
  // MixtureOfExperts::forward().
  Status add_experts(std::uint32_t index, ExpertStore& store, float* hidden,
                     FunctionRef<void()> last_reads);

  // Second half of a layer without experts, of the tokens of the last mix().
  void add_dense(std::uint32_t index, float* hidden);
  // Second half of a layer whose routed experts were computed elsewhere, for at most max_tokens
  // rows: `routed` are the sums over each token's experts, hidden is as mix() left it; both
  // [tokens, H].
  void finish_network(std::uint32_t index, const float* routed, std::size_t tokens, float* hidden);

  // The final norm of these rows of hidden (at most max_tokens or limits.logit_rows), one after
  // another: [rows, H], valid until the next call of any function.
  std::span<const float> final_norm(std::span<const std::size_t> rows, const float* hidden);

  // The row of expert_inputs() of one row of hidden, as mix() computes it. From any thread.
  void expert_input(std::uint32_t index, const float* hidden, float* out);

 private:
  // out = norm of hidden, [tokens, H] both.
  void norm(std::span<const float> factor, std::size_t tokens, const float* hidden, float* out);
  // hidden += the mixer's output, or zero for rows of no live slice; normed = norm of hidden.
  void add_mixed_and_norm(const LayerWeights& layer, std::span<const LayerSlice> slices,
                          std::size_t tokens, float* hidden);
  std::span<const float> route_logits(const MoeWeights& moe, std::size_t tokens,
                                      const float* hidden);
  // What the shared expert reads of the last mix(), or of finish_network().
  const float* shared_inputs(const MoeWeights& moe) const {
    return moe.shared_input_norm.empty() ? scratch_.normed.data() : scratch_.mixed.data();
  }

  const ModelConfig& config_;
  const ModelWeights& weights_;
  std::size_t width_;
  std::size_t max_tokens_;
  Activations scratch_;
  Compute compute_;
  FullAttention attention_;
  LatentAttention latent_;
  DeltaNet delta_;
  MixtureOfExperts moe_;
  std::size_t mixed_tokens_ = 0;  // of the last mix()
};

}  // namespace moepack

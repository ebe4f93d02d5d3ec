// The mixture of experts of one layer: router, routed experts from the store, shared expert.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/compute.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/router.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// Writes the input of one token, [H].
using TokenInput = std::function<void(std::uint32_t token, float* out)>;

class MixtureOfExperts {
 public:
  MixtureOfExperts(const ModelConfig& config, std::size_t max_tokens);

  // Computes router logits of u [tokens, H] and keeps them until the next call.
  std::span<const float> route_logits(Compute& compute, const MoeWeights& weights, const float* u,
                                      std::size_t tokens);

  // out[t] += routed experts(u[t]) + gated shared expert(u[t]), with the routing of the last
  // route_logits. u, out: [tokens, H]. Each expert is fetched once for all of its tokens; resident
  // experts are computed while missing ones are read, and those as they arrive. The sum over a
  // token's experts is taken in the order of their rank, whatever order they arrived in.
  Status forward(Compute& compute, const MoeWeights& weights, std::uint32_t layer,
                 ExpertStore& store, const float* u, std::size_t tokens, float* out);

  // The two parts of forward for a corpus that was routed elsewhere. Both use the same scratch.
  //
  // out[a.token] += a.weight * expert(u of a.token) for all of `sorted` (by expert, then token; any
  // number), in that order. `input` writes the H values of one token's u, from any thread. Each
  // expert is fetched once, however many tokens it has; `done` is told how many uses were computed.
  Status add_routed(Compute& compute, std::uint32_t layer, ExpertStore& store,
                    std::span<const Assignment> sorted, const TokenInput& input, float* out,
                    const std::function<void(std::size_t)>& done);
  // out[t] += gated shared expert(u[t]), at most max_tokens; nothing where the layer has none.
  void add_shared(Compute& compute, const MoeWeights& weights, const float* u, std::size_t tokens,
                  float* out);

 private:
  // Assignments [first, first + count) of sorted_ belong to one expert.
  struct Group {
    std::uint32_t expert = 0;
    std::size_t first = 0;
    std::size_t count = 0;
  };

  void sort_by_expert(const RouterSpec& routing, const float* u, std::size_t tokens);
  Status run_batch(Compute& compute, ExpertStore& store, std::uint32_t layer,
                   std::span<const Group> groups);
  void compute_groups(Compute& compute, std::span<const Group> groups,
                      std::span<const ExpertHandle> handles, std::span<const ReadyExpert> ready);
  void combine(Compute& compute, std::size_t tokens, float* out);
  Status run_groups(Compute& compute, ExpertStore& store, std::uint32_t layer);

  ModelConfig config_;
  std::vector<float> logits_;          // [tokens, E]
  std::vector<Assignment> sorted_;     // by expert, then token
  std::vector<std::size_t> place_of_;  // [tokens, K] -> index into sorted_
  std::vector<Group> groups_;
  std::vector<float> gathered_;       // [tokens * K, H]: inputs in the order of sorted_
  std::vector<float> gate_;           // [tokens * K, M]
  std::vector<float> up_;             // [tokens * K, M]
  std::vector<float> results_;        // [tokens * K, H]
  std::vector<float> shared_gate_;    // [tokens, shared width]
  std::vector<float> shared_up_;      // [tokens, shared width]
  std::vector<float> shared_out_;     // [tokens, H]
  std::vector<float> shared_weight_;  // [tokens]
};

}  // namespace moepack

// Exact routing: which experts a token uses and with what weights, as the layer's RouterSpec says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "formats/config/layer_spec.h"

namespace moepack {

// One token's use of one expert.
struct Assignment {
  std::uint32_t expert = 0;
  std::uint32_t token = 0;
  std::uint32_t slot = 0;  // rank of the expert among the token's K
  float weight = 0;
};

// Rows [first, first + count) of a batch.
struct RowRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

// How a layer chooses its experts. Read by any number of threads.
struct Routing {
  RouterSpec spec;
  // [E], of SigmoidRouterSpec: added to the sigmoids to choose, and to nothing else. Empty: zeros.
  std::vector<float> correction;
  // [E]: what the weights are multiplied with at last. Empty: nothing.
  std::vector<float> expert_scales;

  Routing() = default;
  Routing(RouterSpec router) : spec(router) {}         // NOLINT(google-explicit-constructor)
  Routing(SoftmaxRouterSpec router) : spec(router) {}  // NOLINT(google-explicit-constructor)
  Routing(RouterSpec router, std::vector<float> corrections)
      : spec(router), correction(std::move(corrections)) {}
};

// Chooses `top_k` experts for each row of logits [tokens, experts]. Ties go to the lower id.
// Result: [tokens * top_k], by token, then by falling probability, or sigmoid plus correction. A
// weight is the expert's probability or sigmoid, divided by the sum of those chosen where the
// router renormalises, times its scale and the expert's. Pure; any number of threads.
std::vector<Assignment> route(const Routing& routing, const float* logits, std::size_t tokens,
                              std::uint32_t experts, std::uint32_t top_k);
// The same for one row of logits, [scratch.size()], that belongs to `token`: chosen.size() experts,
// 1 to as many as there are.
void route_row(const Routing& routing, const float* logits, std::uint32_t token,
               std::span<float> scratch, std::span<Assignment> chosen);

// Cache-aware routing (--car J,M): not the model's own, but cheaper where experts are read from the
// disk. Off where `among` is 0; else always <= K <= among.
struct CacheAwareRouting {
  std::uint32_t always = 0;  // J: the most probable experts that are chosen wherever they are
  std::uint32_t among = 0;   // M: the most probable ones that the others are chosen from
  bool is_on() const { return among != 0; }
};

// How many of the choices were those of exact routing.
struct RoutingAgreement {
  std::uint64_t choices = 0;
  std::uint64_t unchanged = 0;
  double share() const;  // 1 without a choice
};

// route_row() for cache-aware routing: the `always` most probable experts; then, of the
// ranked.size() most probable, those with is_resident[expert] != 0, then the others, the more
// probable first. Weights are probabilities as in route_row(), ordered by them too. `ranked` is
// scratch of `among` elements. Gives how many of the choices route_row() would have made.
std::uint32_t route_row_cached(const Routing& routing, const float* logits, std::uint32_t token,
                               std::uint32_t always, std::span<const std::uint8_t> is_resident,
                               std::span<float> scratch, std::span<Assignment> ranked,
                               std::span<Assignment> chosen);

}  // namespace moepack

// Exact routing: softmax over all experts, the K most probable, as the layer's RouterSpec says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// Chooses `top_k` experts for each row of logits [tokens, experts]. Ties go to the lower id.
// Result: [tokens * top_k], by token, then by falling probability. A weight is the expert's
// probability, divided by the sum of those chosen where the router renormalises. Pure; any number
// of threads.
std::vector<Assignment> route(const RouterSpec& spec, const float* logits, std::size_t tokens,
                              std::uint32_t experts, std::uint32_t top_k);
// The same for one row of logits, [scratch.size()], that belongs to `token`: chosen.size() experts,
// 1 to as many as there are.
void route_row(const RouterSpec& spec, const float* logits, std::uint32_t token,
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
std::uint32_t route_row_cached(const RouterSpec& spec, const float* logits, std::uint32_t token,
                               std::uint32_t always, std::span<const std::uint8_t> is_resident,
                               std::span<float> scratch, std::span<Assignment> ranked,
                               std::span<Assignment> chosen);

}  // namespace moepack

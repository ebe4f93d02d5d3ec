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

}  // namespace moepack

#include "runtime/model/router.h"

#include <algorithm>
#include <numeric>

#include "runtime/model/compute.h"

namespace moepack {

std::vector<Assignment> route(const RouterSpec& spec, const float* logits, std::size_t tokens,
                              std::uint32_t experts, std::uint32_t top_k) {
  std::vector<Assignment> chosen;
  chosen.reserve(tokens * top_k);
  route_rows(spec, logits, {.first = 0, .count = tokens}, experts, top_k, chosen);
  return chosen;
}

void route_rows(const RouterSpec& spec, const float* logits, RowRange rows, std::uint32_t experts,
                std::uint32_t top_k, std::vector<Assignment>& chosen) {
  const bool renormalise = std::get<SoftmaxRouterSpec>(spec).renormalise;
  std::vector<float> p(experts);
  std::vector<std::uint32_t> order(experts);
  for (std::size_t t = rows.first; t < rows.first + rows.count; ++t) {
    std::copy_n(logits + t * experts, experts, p.begin());
    softmax(p.data(), experts);
    std::iota(order.begin(), order.end(), 0U);
    std::partial_sort(
        order.begin(), order.begin() + top_k, order.end(),
        [&](std::uint32_t a, std::uint32_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
    float sum = 0.0F;
    for (std::uint32_t k = 0; k < top_k; ++k) sum += p[order[k]];
    for (std::uint32_t k = 0; k < top_k; ++k) {
      chosen.push_back({.expert = order[k],
                        .token = static_cast<std::uint32_t>(t),
                        .slot = k,
                        .weight = renormalise ? p[order[k]] / sum : p[order[k]]});
    }
  }
}

}  // namespace moepack

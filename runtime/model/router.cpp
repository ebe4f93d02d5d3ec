#include "runtime/model/router.h"

#include <algorithm>

#include "runtime/model/compute.h"

namespace moepack {

std::vector<Assignment> route(const RouterSpec& spec, const float* logits, std::size_t tokens,
                              std::uint32_t experts, std::uint32_t top_k) {
  std::vector<Assignment> chosen(tokens * top_k);
  std::vector<float> scratch(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    route_row(spec, logits + t * experts, static_cast<std::uint32_t>(t), scratch,
              std::span(chosen).subspan(t * top_k, top_k));
  }
  return chosen;
}

void route_row(const RouterSpec& spec, const float* logits, std::uint32_t token, std::span<float> p,
               std::span<Assignment> chosen) {
  std::copy_n(logits, p.size(), p.begin());
  softmax(p.data(), p.size());
  // The best of the experts so far, in order. An equal one that comes later stays behind.
  std::size_t count = 0;
  for (std::uint32_t e = 0; e < p.size(); ++e) {
    if (count == chosen.size() && !(p[e] > chosen[count - 1].weight)) continue;
    std::size_t rank = count < chosen.size() ? count++ : count - 1;
    for (; rank > 0 && p[e] > chosen[rank - 1].weight; --rank) chosen[rank] = chosen[rank - 1];
    chosen[rank] = {.expert = e, .token = token, .weight = p[e]};
  }
  float sum = 0.0F;
  for (const Assignment& use : chosen) sum += use.weight;
  const bool renormalise = std::get<SoftmaxRouterSpec>(spec).renormalise;
  for (std::uint32_t k = 0; k < chosen.size(); ++k) {
    chosen[k].slot = k;
    if (renormalise) chosen[k].weight /= sum;
  }
}

}  // namespace moepack

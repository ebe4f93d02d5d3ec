#include "runtime/model/router.h"

#include <algorithm>

#include "runtime/model/compute.h"

namespace moepack {
namespace {

// The best.size() most probable experts and their probabilities, in order. An equal one of a higher
// id stays behind.
void rank_experts(const float* logits, std::uint32_t token, std::span<float> p,
                  std::span<Assignment> best) {
  std::copy_n(logits, p.size(), p.begin());
  softmax(p.data(), p.size());
  std::size_t count = 0;
  for (std::uint32_t e = 0; e < p.size(); ++e) {
    if (count == best.size() && !(p[e] > best[count - 1].weight)) continue;
    std::size_t rank = count < best.size() ? count++ : count - 1;
    for (; rank > 0 && p[e] > best[rank - 1].weight; --rank) best[rank] = best[rank - 1];
    best[rank] = {.expert = e, .token = token, .weight = p[e]};
  }
}

// Ranks and weights of what was chosen.
void finish_row(const RouterSpec& spec, std::span<Assignment> chosen) {
  float sum = 0.0F;
  for (const Assignment& use : chosen) sum += use.weight;
  const bool renormalise = std::get<SoftmaxRouterSpec>(spec).renormalise;
  for (std::uint32_t k = 0; k < chosen.size(); ++k) {
    chosen[k].slot = k;
    if (renormalise) chosen[k].weight /= sum;
  }
}

}  // namespace

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
  rank_experts(logits, token, p, chosen);
  finish_row(spec, chosen);
}

double RoutingAgreement::share() const {
  return choices == 0 ? 1.0 : static_cast<double>(unchanged) / static_cast<double>(choices);
}

std::uint32_t route_row_cached(const RouterSpec& spec, const float* logits, std::uint32_t token,
                               std::uint32_t always, std::span<const std::uint8_t> is_resident,
                               std::span<float> scratch, std::span<Assignment> ranked,
                               std::span<Assignment> chosen) {
  rank_experts(logits, token, scratch, ranked);
  // Places among `ranked` are noted in `slot`, so that the choice can be put in order again.
  for (std::uint32_t rank = 0; rank < ranked.size(); ++rank) ranked[rank].slot = rank;
  std::size_t count = 0;
  const auto take = [&](bool resident) {
    for (std::size_t r = always; r < ranked.size() && count < chosen.size(); ++r) {
      if ((is_resident[ranked[r].expert] != 0) == resident) chosen[count++] = ranked[r];
    }
  };
  for (; count < always; ++count) chosen[count] = ranked[count];
  take(true);
  take(false);
  std::sort(chosen.begin(), chosen.end(),
            [](const Assignment& a, const Assignment& b) { return a.slot < b.slot; });
  const auto unchanged = std::count_if(chosen.begin(), chosen.end(), [&](const Assignment& use) {
    return use.slot < chosen.size();
  });
  finish_row(spec, chosen);
  return static_cast<std::uint32_t>(unchanged);
}

}  // namespace moepack

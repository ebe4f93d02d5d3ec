#include "runtime/model/router.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <variant>

#include "runtime/model/compute.h"

namespace moepack {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// Added to the sum that weights are divided by, as DeepSeek-V3 and transformers do.
constexpr float kTinySum = 1e-20F;

// The best.size() experts with the highest scores, in order. An equal one of a higher id stays
// behind.
void rank_scores(std::span<const float> scores, std::uint32_t token, std::span<Assignment> best) {
  std::size_t count = 0;
  for (std::uint32_t e = 0; e < scores.size(); ++e) {
    if (count == best.size() && !(scores[e] > best[count - 1].weight)) continue;
    std::size_t rank = count < best.size() ? count++ : count - 1;
    for (; rank > 0 && scores[e] > best[rank - 1].weight; --rank) best[rank] = best[rank - 1];
    best[rank] = {.expert = e, .token = token, .weight = scores[e]};
  }
}

// The sum of the two highest scores of a group.
float group_score(std::span<const float> scores) {
  float first = kNever;
  float second = kNever;
  for (const float score : scores) {
    second = std::max(second, std::min(first, score));
    first = std::max(first, score);
  }
  return scores.size() < 2 ? first : first + second;
}

// Whether `group` is among the best: fewer than kept_groups are better, or equal and before it.
bool keeps_group(const SigmoidRouterSpec& spec, std::span<const float> scores, std::size_t group) {
  const std::size_t size = scores.size() / spec.groups;
  const float own = group_score(scores.subspan(group * size, size));
  std::uint32_t better = 0;
  for (std::size_t g = 0; g < spec.groups; ++g) {
    const float other = group_score(scores.subspan(g * size, size));
    if (other > own || (other == own && g < group)) ++better;
  }
  return better < spec.kept_groups;
}

// Takes the experts of all but the best groups out of the choice.
void leave_out_groups(const SigmoidRouterSpec& spec, std::span<float> scores) {
  if (spec.kept_groups >= spec.groups) return;
  // Noted first: a group that is left out still counts for the others.
  std::bitset<kMaxRouterGroups> kept;
  for (std::size_t g = 0; g < spec.groups; ++g) kept[g] = keeps_group(spec, scores, g);
  const std::size_t size = scores.size() / spec.groups;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (!kept[e / size]) scores[e] = kNever;
  }
}

// The best.size() experts that come first and their weights before they are divided, in order.
void rank_experts(const Routing& routing, const float* logits, std::uint32_t token,
                  std::span<float> scores, std::span<Assignment> best) {
  std::copy_n(logits, scores.size(), scores.begin());
  const auto* sigmoids = std::get_if<SigmoidRouterSpec>(&routing.spec);
  if (sigmoids == nullptr) {
    softmax(scores.data(), scores.size());
    return rank_scores(scores, token, best);
  }
  for (float& score : scores) score = sigmoid(score);
  for (std::size_t e = 0; e < routing.correction.size(); ++e) scores[e] += routing.correction[e];
  leave_out_groups(*sigmoids, scores);
  rank_scores(scores, token, best);
  for (Assignment& use : best) use.weight = sigmoid(logits[use.expert]);
}

// Ranks and weights of what was chosen.
void finish_row(const Routing& routing, std::span<Assignment> chosen) {
  const RouterSpec& spec = routing.spec;
  float sum = 0.0F;
  for (const Assignment& use : chosen) sum += use.weight;
  const auto* sigmoids = std::get_if<SigmoidRouterSpec>(&spec);
  const bool renormalise =
      sigmoids != nullptr ? sigmoids->renormalise : std::get<SoftmaxRouterSpec>(spec).renormalise;
  if (sigmoids != nullptr) sum += kTinySum;
  for (std::uint32_t k = 0; k < chosen.size(); ++k) {
    chosen[k].slot = k;
    if (renormalise) chosen[k].weight /= sum;
    if (sigmoids != nullptr) chosen[k].weight *= sigmoids->scale;
    if (!routing.expert_scales.empty()) chosen[k].weight *= routing.expert_scales[chosen[k].expert];
  }
}

}  // namespace

std::vector<Assignment> route(const Routing& routing, const float* logits, std::size_t tokens,
                              std::uint32_t experts, std::uint32_t top_k) {
  std::vector<Assignment> chosen(tokens * top_k);
  std::vector<float> scratch(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    route_row(routing, logits + t * experts, static_cast<std::uint32_t>(t), scratch,
              std::span(chosen).subspan(t * top_k, top_k));
  }
  return chosen;
}

void route_row(const Routing& routing, const float* logits, std::uint32_t token,
               std::span<float> scratch, std::span<Assignment> chosen) {
  rank_experts(routing, logits, token, scratch, chosen);
  finish_row(routing, chosen);
}

double RoutingAgreement::share() const {
  return choices == 0 ? 1.0 : static_cast<double>(unchanged) / static_cast<double>(choices);
}

std::uint32_t route_row_cached(const Routing& routing, const float* logits, std::uint32_t token,
                               std::uint32_t always, std::span<const std::uint8_t> is_resident,
                               std::span<float> scratch, std::span<Assignment> ranked,
                               std::span<Assignment> chosen) {
  rank_experts(routing, logits, token, scratch, ranked);
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
  finish_row(routing, chosen);
  return static_cast<std::uint32_t>(unchanged);
}

}  // namespace moepack

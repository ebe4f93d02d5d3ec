#include "runtime/placement/hot_plan.h"

#include <utility>

#include "runtime/placement/slot_planner.h"

namespace moepack {
namespace {

double hit_share_of(const LaneUse& use, const HotSet& set) {
  double hot = 0;
  double all = 0;
  for (std::size_t l = 0; l < use.layers.size(); ++l) {
    const LayerLanes& layer = use.layers[l];
    all += static_cast<double>(layer.all_uses());
    for (const std::uint32_t expert : set[l]) hot += static_cast<double>(layer.uses(expert));
  }
  return all > 0 ? hot / all : 0;
}

// Layers may have fewer experts than the profile has counts for; a dense one has none.
SlotScores scores_of(const LaneUse& use, SlotWeighting weighting,
                     std::span<const std::uint32_t> experts) {
  SlotScores scores = slot_scores(use, weighting);
  for (std::size_t l = 0; l < scores.size(); ++l) scores[l].resize(experts[l]);
  return scores;
}

}  // namespace

std::vector<std::uint64_t> equal_slots(std::span<const std::uint32_t> experts) {
  std::vector<std::uint64_t> bytes;
  for (const std::uint32_t count : experts) bytes.push_back(count == 0 ? 0 : 1);
  return bytes;
}

HotPlan plan_hot_experts(const LaneUse& use, SlotWeighting weighting,
                         std::span<const std::uint32_t> experts, std::uint64_t slots) {
  HotPlan plan;
  plan.slots = slots;
  if (slots == 0) {
    plan.reason = "the GPU has room for what prompts fetch alone; raise --vram-mb";
    return plan;
  }
  plan.set = plan_hot_set(scores_of(use, weighting, experts), equal_slots(experts), slots);
  plan.hit_share = hit_share_of(use, *plan.set);
  return plan;
}

HotPlan join_hot_plans(std::span<const HotPart> parts) {
  HotPlan joined;
  HotSet set;
  bool has_set = false;
  double hits = 0;
  double uses = 0;
  for (const HotPart& part : parts) {
    joined.slots += part.holds_all ? part.experts : part.plan.slots;
    uses += static_cast<double>(part.uses);
    hits += static_cast<double>(part.uses) * (part.holds_all ? 1 : part.plan.hit_share);
    has_set = has_set || part.plan.set.has_value();
    const HotSet own = part.plan.set.value_or(HotSet(part.layers));
    set.insert(set.end(), own.begin(), own.end());
    if (joined.reason.empty()) joined.reason = part.plan.reason;
  }
  if (!has_set) return joined;
  joined.reason.clear();
  joined.set = std::move(set);
  joined.hit_share = uses > 0 ? hits / uses : 0;
  return joined;
}

}  // namespace moepack

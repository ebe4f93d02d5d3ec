#include "runtime/vulkan/hot_exchange.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "runtime/placement/hot_plan.h"

namespace moepack {

HotSet in_order(const HotSet& hot, std::size_t num_layers) {
  HotSet sorted = hot;
  sorted.resize(num_layers);
  for (auto& ids : sorted) std::sort(ids.begin(), ids.end());
  return sorted;
}

Result<HotChange> exchange_hot(DeviceExperts& experts, const SlotScores& scores, double rate,
                               const PackManifest& pack, ExpertStore& store, HotSet& hot) {
  std::vector<std::uint32_t> counts(pack.num_layers);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) counts[l] = pack.experts_of(l);
  SlotScores known = scores;
  for (std::size_t l = 0; l < known.size(); ++l) known[l].resize(counts[l]);
  const std::vector<std::uint64_t> bytes = equal_slots(counts);
  HotChange change{.is_active = true, .rate = rate};
  change.hot = hot_count(hot);
  const double bounded = std::clamp(rate, 0.0, 1.0) * static_cast<double>(change.hot);
  change.most = static_cast<std::uint64_t>(std::ceil(bounded));
  std::vector<SlotExchange> wanted = plan_exchange(hot, known, bytes, 1);  // most gain first
  change.candidates = wanted.size();
  wanted.resize(std::min<std::size_t>(wanted.size(), change.most));
  if (wanted.empty()) return change;
  MOE_ASSIGN_OR_RETURN(const std::vector<SlotExchange> done, experts.exchange(wanted, store));
  apply_exchange(done, hot);
  std::set<std::uint32_t> layers;
  for (const SlotExchange& x : done) layers.insert({x.layer_out, x.layer_in});
  change.exchanged = done.size();
  change.layers = layers.size();
  return change;
}

}  // namespace moepack

#include "runtime/placement/hot_set.h"

#include <algorithm>
#include <string>

namespace moepack {
namespace {

// Of all slots, those that prompts fetch through: more make their parts larger, and leave fewer
// experts hot.
constexpr std::uint64_t kPassingDivisor = 8;

Status bad_hot_set(const std::string& what) {
  return invalid_argument("the list of hot experts " + what, "make it for this model");
}

}  // namespace

SlotShares share_slots(std::uint64_t slots, std::uint32_t experts_per_token) {
  const std::uint64_t passing =
      std::min(slots, std::max<std::uint64_t>(experts_per_token, slots / kPassingDivisor));
  return {.hot = slots - passing, .passing = passing};
}

HotSet flat_hot_set(std::span<const std::uint32_t> experts, std::uint64_t slots) {
  HotSet hot(experts.size());
  const std::uint32_t most =
      experts.empty() ? 0 : *std::max_element(experts.begin(), experts.end());
  for (std::uint32_t id = 0; id < most; ++id) {
    for (std::size_t layer = 0; layer < experts.size() && slots > 0; ++layer) {
      if (id >= experts[layer]) continue;
      hot[layer].push_back(id);
      --slots;
    }
  }
  return hot;
}

HotSet layers_of(const HotSet& hot, const LayerRange& range) {
  HotSet part(range.count());
  for (std::size_t l = range.first; l < std::min<std::size_t>(range.end, hot.size()); ++l) {
    part[l - range.first] = hot[l];
  }
  return part;
}

std::uint64_t hot_count(const HotSet& hot) {
  std::uint64_t count = 0;
  for (const auto& layer : hot) count += layer.size();
  return count;
}

Status check_hot_set(const HotSet& hot, std::span<const std::uint32_t> experts,
                     std::uint64_t slots) {
  if (hot.size() > experts.size()) {
    return bad_hot_set("has " + std::to_string(hot.size()) + " layers, the model " +
                       std::to_string(experts.size()));
  }
  for (std::size_t layer = 0; layer < hot.size(); ++layer) {
    std::vector<std::uint8_t> seen(experts[layer]);
    for (const std::uint32_t expert : hot[layer]) {
      const std::string what =
          "names expert " + std::to_string(expert) + " of layer " + std::to_string(layer);
      if (expert >= experts[layer]) {
        return bad_hot_set(what + ", the layer has " + std::to_string(experts[layer]));
      }
      if (seen[expert] != 0) return bad_hot_set(what + " twice");
      seen[expert] = 1;
    }
  }
  const std::uint64_t count = hot_count(hot);
  if (count <= slots) return Status::ok();
  return invalid_argument("the list of hot experts names " + std::to_string(count) +
                              ", the device has room for " + std::to_string(slots),
                          "name fewer, or raise --vram-mb if the device has more");
}

}  // namespace moepack

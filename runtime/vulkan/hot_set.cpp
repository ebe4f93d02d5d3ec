#include "runtime/vulkan/hot_set.h"

#include <algorithm>
#include <numeric>
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

HotSet flat_hot_set(std::uint32_t layers, std::uint32_t experts, std::uint64_t slots) {
  HotSet hot(layers);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const std::uint64_t share = slots / layers + (layer < slots % layers ? 1 : 0);
    hot[layer].resize(std::min<std::uint64_t>(share, experts));
    std::iota(hot[layer].begin(), hot[layer].end(), 0U);
  }
  return hot;
}

std::uint64_t hot_count(const HotSet& hot) {
  std::uint64_t count = 0;
  for (const auto& layer : hot) count += layer.size();
  return count;
}

Status check_hot_set(const HotSet& hot, std::uint32_t layers, std::uint32_t experts,
                     std::uint64_t slots) {
  if (hot.size() > layers) {
    return bad_hot_set("has " + std::to_string(hot.size()) + " layers, the model " +
                       std::to_string(layers));
  }
  for (std::size_t layer = 0; layer < hot.size(); ++layer) {
    std::vector<std::uint8_t> seen(experts);
    for (const std::uint32_t expert : hot[layer]) {
      const std::string what =
          "names expert " + std::to_string(expert) + " of layer " + std::to_string(layer);
      if (expert >= experts) {
        return bad_hot_set(what + ", the model has " + std::to_string(experts));
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

// Which experts get the slots in the GPU's memory, and how that changes when other experts are
// used. Pure functions of scores and sizes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/placement/hot_set.h"
#include "runtime/placement/slot_weighting.h"

namespace moepack {

// Experts by falling score, equal ones by layer and id, as long as they fit; one that does not fit
// is passed over for smaller ones. What is left over once all used experts have a slot is filled
// with the unused ones by id, of all layers in turn. `slot_bytes`: [num_layers], of one expert; 0:
// the layer has no experts.
HotSet plan_hot_set(const SlotScores& scores, std::span<const std::uint64_t> slot_bytes,
                    std::uint64_t budget);

struct SlotExchange {
  std::uint32_t layer_out = 0;
  std::uint32_t expert_out = 0;
  std::uint32_t layer_in = 0;
  std::uint32_t expert_in = 0;

  bool operator==(const SlotExchange&) const = default;
};

// The exchanges that win the most by score, the largest gain first: at most `rate` (0 to 1) of the
// hot experts, rounded up, and none without a gain. Only slots of one size change hands; layers may
// win and lose slots, those without hot experts too. Applying all of them leaves as many bytes hot.
std::vector<SlotExchange> plan_exchange(const HotSet& hot, const SlotScores& scores,
                                        std::span<const std::uint64_t> slot_bytes, double rate);
// `hot` after `exchanges` of it.
void apply_exchange(std::span<const SlotExchange> exchanges, HotSet& hot);

// What an exchange did, for reports.
struct HotChange {
  bool is_active = false;        // there is a hot set
  double rate = 0;               // as asked for
  std::uint64_t candidates = 0;  // exchanges with a gain
  std::uint64_t most = 0;        // that the rate allowed
  std::uint64_t exchanged = 0;   // experts that came, each for one that left
  std::uint64_t hot = 0;         // experts of the hot set
  std::uint64_t layers = 0;      // whose hot experts changed
};
// Of several devices as of one; both at one rate.
void add_change(const HotChange& part, HotChange& sum);

}  // namespace moepack

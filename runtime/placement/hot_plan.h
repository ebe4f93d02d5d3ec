// Which experts of a profile become hot on a device, and how many of its uses that serves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/placement/hot_set.h"
#include "runtime/placement/lane_use.h"
#include "runtime/placement/slot_weighting.h"

namespace moepack {

struct HotPlan {
  std::uint64_t slots = 0;    // of hot experts
  std::optional<HotSet> set;  // by a profile, ids ascending; nullopt: without one, or not used
  double hit_share = 0;       // with `set`: of the profile's uses those of its experts, 0 to 1
  std::string reason;         // why a profile that was given is not used; else empty
};

// Pure. `experts`: [num_layers], routed experts of a layer; 0: a dense one. All slots have one
// size. Without a slot there is a reason and no set.
HotPlan plan_hot_experts(const LaneUse& use, SlotWeighting weighting,
                         std::span<const std::uint32_t> experts, std::uint64_t slots);

// What one of several devices keeps, which has a part of the layers.
struct HotPart {
  HotPlan plan;
  std::uint32_t layers = 0;
  std::uint64_t experts = 0;  // of its layers
  std::uint64_t uses = 0;     // in the profile, of its layers
  bool holds_all = false;     // its experts
};
// All of it as of one device, in the order of the layers: with a set where a device has one by the
// profile. A device that holds all its experts has slots for them, and serves every use.
HotPlan join_hot_plans(std::span<const HotPart> parts);

// One size for the slots of every layer with experts, as the planner takes them.
std::vector<std::uint64_t> equal_slots(std::span<const std::uint32_t> experts);

}  // namespace moepack

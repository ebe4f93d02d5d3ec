// The exchange of experts that are kept on a device for others that are worth more there.
#pragma once

#include <cstdint>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/placement/hot_set.h"
#include "runtime/placement/slot_planner.h"
#include "runtime/store/expert_store.h"
#include "runtime/vulkan/device_experts.h"

namespace moepack {

// `hot` with one list a layer, ids ascending, as the planner takes it.
HotSet in_order(const HotSet& hot, std::size_t num_layers);

// Carries out plan_exchange() in place: slots keep their memory, and at most `rate` of the hot
// experts change. `hot` is what `experts` keeps, before and after. An expert that cannot be read
// stays away, and the one it should have replaced stays. `scores`: [num_layers][num_experts]. An
// error is the device's or the store's refusal, and final. Not while a batch is under way.
Result<HotChange> exchange_hot(DeviceExperts& experts, const SlotScores& scores, double rate,
                               const PackManifest& pack, ExpertStore& store, HotSet& hot);

}  // namespace moepack

// Which experts lie in device memory for good, where not all fit: the seam between whoever plans it
// and the backend that carries it out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/placement/layer_split.h"

namespace moepack {

// [layer]: ids of its hot experts, each once, in any order. A layer may have none; fewer lists than
// layers mean that the others have none.
using HotSet = std::vector<std::vector<std::uint32_t>>;

// How a device's slots are divided: those of hot experts, and those through which prompts fetch the
// others, an eighth of all but at least one layer's choice of one token.
struct SlotShares {
  std::uint64_t hot = 0;
  std::uint64_t passing = 0;
};
SlotShares share_slots(std::uint64_t slots, std::uint32_t experts_per_token);

// `slots` experts, as many in each layer as in any other that has so many, the first ids: for a
// model whose use nobody has measured. What does not divide goes to the first layers. `experts`:
// [num_layers], routed experts of a layer; 0: a dense one.
HotSet flat_hot_set(std::span<const std::uint32_t> experts, std::uint64_t slots);

// Of these layers alone, numbered from 0.
HotSet layers_of(const HotSet& hot, const LayerRange& range);

// Experts of all layers.
std::uint64_t hot_count(const HotSet& hot);

// kInvalidArgument, naming the layer, for more layers than there are, an expert that the model does
// not have or that stands there twice, or more experts than `slots`. `experts`: as above.
Status check_hot_set(const HotSet& hot, std::span<const std::uint32_t> experts,
                     std::uint64_t slots);

}  // namespace moepack

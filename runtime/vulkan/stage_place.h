// Which part of a model a device computes.
#pragma once

#include <cstdint>

namespace moepack {

// Which layers of a model a device computes.
struct StagePlace {
  std::uint32_t first_layer = 0;  // of the whole model, for messages and observers
  bool is_first = true;           // begins with the tokens' embedding; else with rows of before
  bool is_last = true;            // ends with logits; else with rows for the next
};

}  // namespace moepack

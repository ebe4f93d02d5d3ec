// JSON whose keys keep the order in which they were written.
#pragma once

#include <nlohmann/json.hpp>

namespace moepack {

// Templates print keys in that order, and a prompt that is to be found again in a cache must not
// change.
using OrderedJson = nlohmann::ordered_json;

}  // namespace moepack

// What to do about errors that several layers find.
#pragma once

namespace moepack {

// Where numbers stop being finite. Weights that were so in the source are stored as they are, so
// they are no damage.
constexpr const char* kNotFiniteRemedy =
    "moepack verify finds damage; if there is none, weights of the source are not finite (moepack "
    "convert names them), or its numbers overflow";

}  // namespace moepack

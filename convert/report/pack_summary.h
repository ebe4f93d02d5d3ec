// A pack in a few words.
#pragma once

#include <string>

#include "formats/pack/pack_manifest.h"

namespace moepack {

// The formats of the pack's projections: "q2 g64, q3 g64".
std::string pack_formats(const PackManifest& pack);
// Bits of all records divided by the number of weights. Scales and biases are included, padding is
// not.
double pack_bits_per_weight(const PackManifest& pack);

}  // namespace moepack

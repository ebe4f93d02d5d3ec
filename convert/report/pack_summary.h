// A pack in a few words.
#pragma once

#include <string>

#include "formats/pack/pack_manifest.h"

namespace moepack {

// The formats of its projections: "q2 g64, q3 g64".
std::string pack_formats(const PackManifest& pack);
// Bits of the records by number of weights, scales and biases included, padding not.
double pack_bits_per_weight(const PackManifest& pack);

}  // namespace moepack

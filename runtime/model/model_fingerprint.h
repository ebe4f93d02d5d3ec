// Which model bytes belong to: for what is saved of a run and given back to another.
#pragma once

#include <cstdint>

#include "formats/model_dir.h"
#include "runtime/model/model_weights.h"

namespace moepack {

// XXH3 over the shapes and switches of the configuration, the conventions, checksums and sizes of
// the residents, those of the overlays, and checksum, size and place of every expert record. Files
// of other engines have no checksums: there `weights`, the loaded residents of `model`, stand in
// with all norms, convolutions and decays and some rows of every matrix, and of expert records only
// size and place tell.
std::uint64_t model_fingerprint(const ModelDir& model, const ModelWeights& weights);

}  // namespace moepack

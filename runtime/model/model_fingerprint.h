// Which model bytes belong to: for what is saved of a run and given back to another.
#pragma once

#include <cstdint>

#include "formats/model_dir.h"

namespace moepack {

// XXH3 over the shapes and switches of the configuration, the conventions, checksums and sizes of
// the residents, those of the overlays, and checksum, size and place of every expert record. Files
// of other engines have no checksums; of those only sizes and places tell.
std::uint64_t model_fingerprint(const ModelDir& model);

}  // namespace moepack

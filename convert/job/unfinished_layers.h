// Which layers of a pack are still to be written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/job/journal.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// The layers of `wanted` (empty: of the whole pack) that have experts and that the journal does not
// record, in order.
std::vector<std::uint32_t> unfinished_layers(const PackManifest& pack,
                                             std::span<const std::uint32_t> wanted,
                                             const ConversionJournal& journal);

}  // namespace moepack

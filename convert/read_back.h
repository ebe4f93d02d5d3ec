// Reads finished files again and compares them with the checksums that were computed on the way.
#pragma once

#include <cstdint>
#include <filesystem>

#include "formats/pack_manifest.h"
#include "formats/status.h"

namespace moepack {

// Compares every record of one layer file, read from the disk, with `pack`. kIo when one differs:
// the disk did not keep what was written. `threads` records at a time, a mebibyte each.
Status check_layer_file(const std::filesystem::path& directory, const PackManifest& pack,
                        std::uint32_t layer, std::size_t threads);

}  // namespace moepack

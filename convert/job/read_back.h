// Reads finished files again and compares them with the checksums that were computed on the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "convert/job/journal.h"
#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Compares every record of one layer file, read from the disk, with `pack`. kIo when one differs:
// the disk did not keep what was written. `threads` records at a time, a mebibyte each.
Status check_layer_file(const std::filesystem::path& directory, const PackManifest& pack,
                        std::uint32_t layer, std::size_t threads);

// Takes over a layer file that an earlier run finished: true when it is there in full size and its
// records read back with `sums`, as the journal recorded them; those become the pack's checksums.
bool take_layer_file(const std::filesystem::path& directory, PackManifest& pack,
                     std::uint32_t layer, const std::vector<std::uint64_t>& sums,
                     std::size_t threads);

// Forgets the layers that `journal` records and whose files are not there in full size: what a dry
// run takes for finished, which reads no layer.
void forget_missing_layers(const std::filesystem::path& directory, const PackManifest& pack,
                           ConversionJournal& journal);

}  // namespace moepack

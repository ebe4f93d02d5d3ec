// Writes the layer files of an expert pack.
#pragma once

#include <filesystem>

#include "convert/expert_source.h"
#include "convert/progress_counter.h"
#include "formats/pack_manifest.h"

namespace moepack {

// Writes layer_NN.bin of every layer into `directory` as `pack` says and fills in the checksums.
// Experts of a layer are converted by `threads` threads, each with one record and a block of source
// rows in memory; the bytes do not depend on their number. A layer file appears under its name when
// it is complete and synced. layout.json is left to the caller.
Status write_layer_files(const ExpertSource& source, const std::filesystem::path& directory,
                         std::size_t threads, PackManifest& pack, ProgressCounter& progress);

}  // namespace moepack

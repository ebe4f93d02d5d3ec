// Writes model_weights.bin.
#pragma once

#include <filesystem>
#include <span>

#include "convert/progress_counter.h"
#include "convert/source_matrix.h"
#include "formats/resident_manifest.h"

namespace moepack {

// Writes `directory`/model_weights.bin as `manifest` says from sources[i] for tensors[i], and fills
// in the checksum. Rows are handed out in blocks of a few mebibytes, so no tensor is ever whole in
// memory; the bytes do not depend on the number of threads.
Status write_resident_data(std::span<const SourceMatrix> sources,
                           const std::filesystem::path& directory, std::size_t threads,
                           ResidentManifest& manifest, ProgressCounter& progress);

}  // namespace moepack

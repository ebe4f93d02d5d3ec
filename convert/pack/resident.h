// Writes model_weights.bin.
#pragma once

#include <filesystem>
#include <span>

#include "convert/job/progress_counter.h"
#include "convert/pack/not_finite.h"
#include "convert/source/source_matrix.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// Writes `path`, `data_size` bytes, from sources[i] for tensors[i]: its bytes at its offsets, in
// its format and rows. Returns the XXH3-64 of the file. Rows are handed out in blocks of a few
// mebibytes, so no tensor is ever whole in memory; the bytes do not depend on the number of
// threads. `not_finite`: as Transcoder's.
Result<std::uint64_t> write_matrices(std::span<const SourceMatrix> sources,
                                     std::span<const ResidentTensor> tensors,
                                     std::uint64_t data_size, const std::filesystem::path& path,
                                     std::size_t threads, ProgressCounter& progress,
                                     NotFiniteTensors* not_finite = nullptr);

// The same for `directory`/model_weights.bin as `manifest` says; fills in its checksum.
Status write_resident_data(std::span<const SourceMatrix> sources,
                           const std::filesystem::path& directory, std::size_t threads,
                           ResidentManifest& manifest, ProgressCounter& progress,
                           NotFiniteTensors* not_finite);

}  // namespace moepack

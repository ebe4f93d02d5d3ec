// The tensors that predict further tokens, kept as the source holds them: prediction.bin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "convert/job/progress_counter.h"
#include "convert/pack/plan.h"
#include "convert/source/source_tensor.h"
#include "formats/pack/prediction_manifest.h"

namespace moepack {

// Fills `plan.prediction` and its sources from `tensors`, in any order; a note where there are
// none. kUnsupported: a tensor that the manifest cannot state.
Status plan_prediction(const ModelSource& source, std::vector<SourceTensor> tensors,
                       ConvertPlan& plan);

// Writes `directory`/prediction.bin from sources[i] for tensors[i], byte for byte, and fills in the
// checksums. `threads` tensors at a time, a mebibyte each; the bytes do not depend on how many.
Status write_prediction_data(std::span<const SourceTensor> sources,
                             const std::filesystem::path& directory, std::size_t threads,
                             PredictionManifest& manifest, ProgressCounter& progress);

// Compares every tensor, read from the disk, with its checksum. kIo when one differs: the disk did
// not keep what was written.
Status read_prediction_back(const std::filesystem::path& directory,
                            const PredictionManifest& manifest, std::size_t threads);

// Takes over what an earlier run finished: true when prediction.bin is there in full size and reads
// back with `sums`, as the journal recorded them; those become the manifest's checksums.
bool take_prediction_data(const std::filesystem::path& directory, PredictionManifest& manifest,
                          const std::vector<std::uint64_t>& sums, std::size_t threads);

}  // namespace moepack

// The prediction file of a model directory against its own manifest and the source it came from.
#pragma once

#include <filesystem>

#include "convert/verify/verify_source.h"
#include "formats/pack/prediction_manifest.h"

namespace moepack {

// Every tensor's checksum, and the zeros between tensors.
Status check_prediction_data(const std::filesystem::path& model, const PredictionManifest& manifest,
                             std::size_t threads, DifferenceLog& log, ProgressCounter& progress);

// Every tensor of either side: there, of one type and shape, and byte for byte the same. The plan
// was made with its prediction tensors kept.
Status compare_prediction(const SourceComparison& with, const std::filesystem::path& model,
                          const PredictionManifest& manifest);
// That the manifest names another source than that of the comparison.
void log_prediction_fingerprint(const SourceComparison& with, const std::filesystem::path& model,
                                const PredictionManifest& manifest);

}  // namespace moepack

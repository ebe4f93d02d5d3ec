// The overlays of a model directory against their own manifests and the GGUF file they came from.
#pragma once

#include <filesystem>
#include <vector>

#include "convert/verify/verify_source.h"
#include "formats/pack/resident_overlay.h"

namespace moepack {

// The checksum of the data file, where the manifest has one.
Status check_overlay(const std::filesystem::path& model, const ResidentOverlay& overlay,
                     DifferenceLog& log, ProgressCounter& progress);

// Every matrix of `overlays`, all of them of the source: its place, its type, and byte for byte
// what it holds, V heads in the order that the overlay states.
Status compare_overlays(const SourceComparison& with, const std::filesystem::path& model,
                        const ResidentConventions& conventions,
                        const std::vector<ResidentOverlay>& overlays);

}  // namespace moepack

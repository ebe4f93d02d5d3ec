// The bytes of a pack and of the resident tensors against their own manifests.
#pragma once

#include <filesystem>

#include "convert/job/progress_counter.h"
#include "convert/source/model_files.h"
#include "convert/verify/difference.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// Every record's checksum, where the manifest has them, and the zeros behind it. One layer file is
// open at a time.
Status check_records(const std::filesystem::path& directory, const PackManifest& pack,
                     std::size_t threads, DifferenceLog& log, ProgressCounter& progress);

// The checksum of the resident tensors' files, where the manifest has one, and in model_weights.bin
// as convert writes it the zeros between components.
Status check_resident_data(const ResidentData& data, const ResidentManifest& manifest,
                           DifferenceLog& log, ProgressCounter& progress);

// Every resident tensor that the architecture needs is there with the shape that config.json
// gives, and no other. Says nothing about model types without a table of names.
void check_resident_names(const std::filesystem::path& model, const ModelConfig& config,
                          const ResidentManifest& manifest, DifferenceLog& log);

}  // namespace moepack

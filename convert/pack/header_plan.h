// What the conversion of a checkpoint would make, told by config.json and the index alone: the
// shards need not be there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// Complete but for checksums, offsets in the layer files' sizes, and the conventions of residents,
// which only tensors tell.
struct HeaderPlan {
  ModelConfig config;
  ResidentManifest residents;
  PackManifest pack;
  std::vector<std::string> notes;  // what had to be assumed, one sentence each
};

// True for a checkpoint directory with an index of which a shard is missing.
bool lacks_shards(const std::filesystem::path& path);

// Shapes are those that the architecture's table gives for config.json; names of the index say
// which tensors there are, and how they are encoded; floats are taken for bf16, because neither
// file states their type. Reads the two files and nothing else. Errors: those of the two readers;
// kNotFound for a tensor that the index lacks, kUnsupported for one that it should not have, or for
// packed integers, whose group only their shapes tell, unless options.expert_format and
// options.resident_format are given.
Result<HeaderPlan> plan_from_headers(const std::filesystem::path& path,
                                     const ConvertOptions& options);

}  // namespace moepack

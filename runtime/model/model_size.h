// How large a model is, and how much of it one token reads.
#pragma once

#include <cstdint>
#include <string>

#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/model/model_weights.h"

namespace moepack {

struct ModelSize {
  std::uint64_t bytes = 0;       // of all weights: residents as they are in memory, expert records
  std::uint64_t parameters = 0;  // weights; an embedding that is the head too counts once
  std::uint64_t record_bytes = 0;  // of an expert's record, in the mean
  std::string expert_format;       // the one that most bytes of the experts have, as "q4 g64"
  // Bytes that computing one token alone reads: a row of the embedding, every other resident, the
  // head, and in each layer the records of as many experts of mean size as a token uses. Without
  // what the sequence remembers.
  std::uint64_t token_bytes = 0;
};

// Pure. `weights` and `pack` belong to a model of this configuration.
ModelSize model_size(const ModelConfig& config, const ModelWeights& weights,
                     const PackManifest& pack);

}  // namespace moepack

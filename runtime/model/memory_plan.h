// How much memory a run takes, as pure arithmetic before anything is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

struct MemoryPlan {
  std::uint64_t resident_bytes = 0;     // model_weights.bin and overlays
  std::uint64_t key_value_bytes = 0;    // at the full context
  std::uint64_t recurrent_bytes = 0;    // GatedDeltaNet states
  std::uint64_t scratch_bytes = 0;      // activations of one chunk of tokens
  std::uint64_t cache_bytes = 0;        // expert records, as RecordCache counts them
  std::uint64_t cache_floor_bytes = 0;  // the experts that one token uses, over all layers
  std::uint64_t pack_bytes = 0;         // all expert records, in memory

  std::uint64_t total_bytes() const {
    return resident_bytes + key_value_bytes + recurrent_bytes + scratch_bytes + cache_bytes;
  }
};

struct MemoryRequest {
  std::uint64_t context = 0;       // tokens
  std::uint64_t chunk_tokens = 0;  // tokens computed at once
  // Budget for expert records in bytes; 0: what is left of available_bytes, at most the whole pack.
  std::uint64_t cache_bytes = 0;
  std::uint64_t available_bytes = 0;  // memory that may be used; 0: unknown
};

// `resident_bytes`: resident_memory() of the model. kInvalidArgument when the cache budget is below
// the floor, naming the flag to change.
Result<MemoryPlan> plan_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                               const PackManifest& pack, const MemoryRequest& request);

// Scratch for the activations of one token, in bytes.
std::uint64_t activation_bytes(const ModelConfig& config);

// Memory the machine can still give, in bytes; 0 when it cannot be told.
std::uint64_t available_memory_bytes();

}  // namespace moepack

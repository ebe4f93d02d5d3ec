// How much memory a run takes, as pure arithmetic before anything is allocated. Every number comes
// from the owner of the memory: activations.h, layer_state.h, resident_tensors.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/state_form.h"

namespace moepack {

// Bytes; each at most kTooManyBytes (byte_counts.h).
struct MemoryPlan {
  std::uint64_t resident_bytes = 0;     // model_weights.bin and overlays, norms as float32
  std::uint64_t key_value_bytes = 0;    // of all sequences at the full context
  std::uint64_t recurrent_bytes = 0;    // GatedDeltaNet states of all sequences
  std::uint64_t scratch_bytes = 0;      // activations of one chunk of tokens
  std::uint64_t list_bytes = 0;         // what is noted of every layer, expert and batch
  std::uint64_t saved_bytes = 0;        // a sequence on its way from or to a file, and snapshots
  std::uint64_t cache_bytes = 0;        // expert records, as RecordCache counts them
  std::uint64_t cache_floor_bytes = 0;  // the experts that one token uses, over all layers
  std::uint64_t pack_bytes = 0;         // all expert records, in memory
  std::uint64_t chunk_tokens = 0;       // tokens computed at once: as requested, or chosen

  // Without the experts' records.
  std::uint64_t fixed_bytes() const {
    return resident_bytes + key_value_bytes + recurrent_bytes + scratch_bytes + list_bytes +
           saved_bytes;
  }
  std::uint64_t total_bytes() const { return fixed_bytes() + cache_bytes; }
  bool holds_all_experts() const { return cache_bytes >= pack_bytes; }
};

struct MemoryRequest {
  std::uint64_t context = 0;  // tokens of a sequence
  // Tokens computed at once; batch_tokens() says how many can be. 0: chosen by automatic_chunk().
  std::uint64_t chunk_tokens = 0;
  std::uint64_t threads = 1;
  std::uint64_t sequences = 1;    // at the same time
  StateForm form;                 // of the states
  std::uint64_t batch_bytes = 0;  // what the caller notes of a batch, and of every sequence
  // Budget for expert records in bytes; 0: what is left of available_bytes, at most the whole pack.
  std::uint64_t cache_bytes = 0;
  std::optional<std::uint64_t> available_bytes;  // memory that may be used; nullopt: unknown
  bool on_device = false;            // states and scratch lie in the memory of another device
  bool saves_sequence = false;       // one at a time, as bytes in memory (saved_sequence.h)
  std::uint64_t snapshot_bytes = 0;  // of sequences, kept by the caller (state_snapshot.h)
  ActivationType activations = ActivationType::kFloat32;
};

// Tokens of the largest batch: a chunk, or all tokens of all sequences where they are fewer.
std::uint64_t batch_tokens(const MemoryRequest& request);

// `resident_bytes`: resident_memory() of the model. kInvalidArgument when the context is above
// kMaxSequenceTokens, the cache budget below the floor, or everything together more than what is
// available; the remedy names flags with values that fit (memory_remedy.h), or says that none do.
// Pure; any number of threads.
Result<MemoryPlan> plan_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                               const PackManifest& pack, const MemoryRequest& request);

// What a run takes, whether it may or not, and what plan_memory() says of it.
struct MemoryJudgement {
  MemoryPlan plan;  // zeros where the context is above kMaxSequenceTokens
  Status verdict;   // ok, or the error of plan_memory()
};
MemoryJudgement judge_memory(const ModelConfig& config, std::uint64_t resident_bytes,
                             const PackManifest& pack, const MemoryRequest& request);

// What would have to change for the cache to hold `cache_bytes`, in the words of memory_remedy().
// For a request that fits; empty where no flag does.
std::string larger_cache_remedy(const ModelConfig& config, std::uint64_t resident_bytes,
                                const PackManifest& pack, const MemoryRequest& request,
                                std::uint64_t cache_bytes);

}  // namespace moepack

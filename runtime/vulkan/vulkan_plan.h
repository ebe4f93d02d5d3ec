// How much device memory a run takes, before anything is allocated there: what must lie on the
// device, and how many experts fit beside it.
#pragma once

#include <cstdint>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/vulkan/mixer_shapes.h"

namespace moepack {

struct VulkanRequest {
  std::uint64_t context = 0;         // tokens of a sequence
  std::uint64_t sequences = 1;       // at the same time
  std::uint64_t rows = 0;            // tokens of a batch
  std::uint32_t subgroup_size = 32;  // of the device
  bool hands_on = true;              // ScratchLimits::hands_on
  KvEncoding kv_encoding = KvEncoding::kFloat32;
  std::uint64_t resident_bytes = 0;  // resident_memory() of the model
  std::uint64_t free_bytes = 0;      // of the device
  std::uint64_t budget = 0;          // --vram-mb in bytes; 0: what is free, less a reserve
};

// Bytes of device memory.
struct VulkanPlan {
  std::uint64_t resident_bytes = 0;   // weights but routed experts
  std::uint64_t key_value_bytes = 0;  // of all sequences at the full context
  std::uint64_t recurrent_bytes = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t expert_bytes = 0;        // slots of experts
  std::uint64_t all_expert_bytes = 0;    // slots of all of them
  std::uint64_t expert_floor_bytes = 0;  // slots of the experts that a token uses in a layer

  bool holds_all_experts() const { return expert_bytes >= all_expert_bytes; }
  std::uint64_t fixed_bytes() const {
    return resident_bytes + key_value_bytes + recurrent_bytes + scratch_bytes;
  }
  std::uint64_t total_bytes() const { return fixed_bytes() + expert_bytes; }
};

// The most parts that keys of one row are split into in a layer (AttendShape::splits), for a model,
// a device and the longest context.
std::uint32_t attend_splits(const ModelConfig& config, std::uint32_t subgroup_size,
                            std::uint64_t context);

// kInvalidArgument, with every part in bytes and the flag to change, when the device has no room
// for the fixed parts and the experts of one token. Pure.
Result<VulkanPlan> plan_vulkan(const ModelConfig& config, const PackManifest& pack,
                               const VulkanRequest& request);

}  // namespace moepack

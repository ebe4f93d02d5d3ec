// The resident weights of a model in device memory, in the roles that ModelWeights gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/weights/expert_layout.h"
#include "formats/weights/qformat.h"
#include "runtime/model/model_weights.h"
#include "runtime/vulkan/device_arena.h"
#include "runtime/vulkan/stage_place.h"

namespace moepack {

// Rows [first, first + count) of a matrix, which lie in one allocation.
struct DeviceRows {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  Components<std::uint64_t> address = {};  // of each component; 0 for those that the format lacks
};

// A matrix y = W x on the device, its rows one after another. Large ones lie in several pieces.
struct DeviceMatrix {
  WeightFormat format;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::vector<DeviceRows> pieces;
};

using DeviceFloats = std::uint64_t;  // the address of float32 values

struct DeviceAttention {
  FullAttentionSpec spec;
  HeadSizes heads;
  DeviceMatrix q, k, v, o;  // no v where values are keys
  DeviceFloats q_norm = 0;  // 0 without norms
  DeviceFloats k_norm = 0;
  DeviceFloats bias = 0;               // [nq + 2 nkv, hd], of queries, keys and values; 0: none
  DeviceFloats output_bias = 0;        // [H]; 0: none
  DeviceFloats sinks = 0;              // [nq]; 0: none
  DeviceFloats inverse_frequency = 0;  // [rotary_dim / 2] of RoPE; pairs that stay have 0
};

struct DeviceDelta {
  DeviceMatrix in_qkv, in_z, in_b, in_a, out;
  DeviceFloats conv = 0;        // [taps, C]
  DeviceFloats decay_rate = 0;  // [nv]
  DeviceFloats dt_bias = 0;     // [nv]
  DeviceFloats norm = 0;        // [dv]
  bool tiled_v_heads = false;
};

struct DeviceLatent {
  LatentAttentionSpec spec;
  DeviceMatrix q_down;           // none without a query rank
  DeviceFloats q_down_norm = 0;  // [Q]; likewise 0
  DeviceMatrix q, kv_down;
  DeviceFloats kv_norm = 0;  // [R]
  DeviceMatrix kv_up;        // in pieces of whole heads
  DeviceMatrix o;
};

// The network of a layer without routed experts stands as a shared expert without a gate.
struct DeviceMoe {
  bool has_experts = true;
  RouterSpec routing;
  DeviceMatrix router;
  DeviceFloats router_norm = 0;  // [H], before the router; 0: that of the experts
  // [E] of the logits, or what corrects sigmoids, and [E] that weights are multiplied with: those
  // that there are; 0: neither.
  DeviceFloats router_numbers = 0;
  bool has_router_bias = false;
  bool has_expert_scales = false;
  bool has_shared = false;
  bool has_shared_gate = true;
  DeviceMatrix shared_expert_gate;  // [1, H]
  ExpertLayout shared;              // of the shared expert as a record
  std::uint64_t shared_record = 0;  // its address
  ExpertActivation activation = ExpertActivation::kSwiGlu;
  float activation_limit = 0;
  DeviceFloats gate_up_bias = 0;  // [E, 2, M]: of gate, then of up; 0: none
  DeviceFloats down_bias = 0;     // [E, H]; 0: none
  // As in MoeWeights; 0 where that has none.
  bool is_plain_sum = true;
  DeviceFloats shared_input_norm = 0;   // [H]
  DeviceFloats shared_output_norm = 0;  // [H]
  DeviceFloats routed_output_norm = 0;  // [H]
  DeviceFloats output_norm = 0;         // [H]
  DeviceFloats output_scale = 0;        // [1]
};

struct DeviceLayer {
  DeviceFloats input_norm = 0;
  DeviceFloats post_norm = 0;
  DeviceFloats mixer_norm = 0;  // [H], of the mixer's result; 0: none
  std::variant<DeviceAttention, DeviceDelta, DeviceLatent> mixer;
  DeviceMoe moe;
};

// Move-only; the device outlives it. Nothing changes once it is there.
struct DeviceWeights {
  explicit DeviceWeights(VulkanDevice& device);

  DeviceArena arena;
  DeviceMatrix embedding;
  DeviceMatrix lm_head;  // the embedding's pieces when tied
  DeviceFloats final_norm = 0;
  std::uint64_t tables = 0;            // grids of ggml's I-quants (shaders/weight_tables.h)
  DeviceFloats inverse_frequency = 0;  // [rotary_dim / 2] of RoPE, of latent attention; 0 without
  float rope_amplitude = 1;            // Rope::amplitude()
  std::vector<DeviceLayer> layers;
};

// Copies `weights` to the device: the embedding where the layers are the model's first, the head
// where they are its last. kIo when memory is short.
Result<std::unique_ptr<DeviceWeights>> upload_weights(VulkanDevice& device,
                                                      const ModelConfig& config,
                                                      const ModelWeights& weights,
                                                      const StagePlace& place = {});

}  // namespace moepack

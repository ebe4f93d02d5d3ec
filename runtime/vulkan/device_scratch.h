// What a forward pass on the device writes down between its kernels, for at most so many rows. The
// function that lays it out also tells its bytes, so that the plan cannot count less.
#pragma once

#include <cstdint>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/vulkan/scratch_layout.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// Rows that take the path of few rows: matrices are read again for each.
constexpr std::uint32_t kFewRows = 8;
// Rows of one call of logits().
constexpr std::uint32_t kDeviceLogitRows = 16;
// Work groups that look for the highest logit of a row.
constexpr std::uint32_t kTopParts = 128;
struct ScratchLimits {
  std::uint64_t rows = 0;    // of a batch
  std::uint64_t slices = 1;  // sequences in it
  std::uint64_t shared_width = 0;
  std::uint64_t splits = 1;  // AttendShape::splits
  bool hands_on = true;      // lists may be ordered: there is DeviceScratch::handed

  friend bool operator==(const ScratchLimits&, const ScratchLimits&) = default;
};

// Addresses. T rows, H hidden size, V vocabulary, E experts, S slots: experts a token and the
// shared one; P = T S pairs, M expert width; nq, nkv heads of hd, of the layer with the largest; nv
// V heads of dv, nk K heads of dk (dkp: rounded up to 32), C channels; of latent attention Q
// query_rank, R kv_rank and W kv_rank + rotary_dim. float32 where nothing is said.
struct DeviceScratch {
  std::uint64_t hidden = 0;            // [T, H]: the residual stream
  std::uint64_t normed = 0;            // [T, H]
  std::uint64_t branch_normed = 0;     // [T, H]: what a shared expert with a norm of its own reads
  std::uint64_t projected = 0;         // [T, C] or [T, nq, 1 or 2, hd]
  std::uint64_t keys = 0;              // [T, nkv, hd] or [T, W]
  std::uint64_t values = 0;            // [T, nkv, hd]
  std::uint64_t delta_z = 0;           // [T, nv, dv]
  std::uint64_t delta_a = 0;           // [T, nv]
  std::uint64_t delta_b = 0;           // [T, nv]
  std::uint64_t delta_keys = 0;        // [T, 2 nk, dkp]
  std::uint64_t delta_values = 0;      // [T, nv, dv]
  std::uint64_t delta_factors = 0;     // [T, nv, 2]
  std::uint64_t mixed = 0;             // [T, nq, hd] or [T, nv, dv], of latent attention its dv
  std::uint64_t query_down = 0;        // [T, Q]: compressed queries
  std::uint64_t latent_queries = 0;    // [T, nq, W]: queries that meet compressed rows
  std::uint64_t split_values = 0;      // [kFewRows, nq, splits, hd or R]
  std::uint64_t split_stats = 0;       // [kFewRows, nq, splits, 2]
  std::uint64_t router_logits = 0;     // [T, E]
  std::uint64_t shared_logits = 0;     // [T]
  std::uint64_t choices = 0;           // [T, S] Choice
  std::uint64_t dense_choices = 0;     // [T] Choice: the network of a layer without experts
  std::uint64_t routes = 0;            // [layers] RouteArgs: how each layer's choices are made
  std::uint64_t row_error = 0;         // [T] uint: the first layer whose numbers are not finite
  std::uint64_t arrived = 0;           // [T] uint, zero between dispatches: RouterArgs
  std::uint64_t arrived_heads = 0;     // [kFewRows, nq] uint, zero between dispatches: AttendArgs
  std::uint64_t pairs = 0;             // [P] uint
  std::uint64_t offsets = 0;           // [E + 2] uint
  std::uint64_t tiles = 0;             // ExpertTile
  std::uint64_t grids = 0;             // shader::DispatchSize
  std::uint64_t activated = 0;         // [P, M]
  std::uint64_t raised = 0;            // [P, M]
  std::uint64_t shared_activated = 0;  // [P, shared width] or [T, dense width], where they differ
                                       // from M
  std::uint64_t shared_raised = 0;     // the same
  std::uint64_t results = 0;           // [P, H]
  std::uint64_t halves = 0;            // [T or P, widest] 16-bit floats
  std::uint64_t half_scales = 0;       // [P]
  std::uint64_t logits = 0;            // [kDeviceLogitRows, V]
  std::uint64_t tops = 0;              // [kDeviceLogitRows, kTopParts] Largest
  std::uint64_t arrived_tops = 0;      // [kDeviceLogitRows] uint, zero between dispatches
  std::uint64_t handed = 0;            // what stages hand to each other: handed_scratch.h
};

// Lays out what the projections of `rows` tokens write and the output projection reads.
void lay_out_mixer(const ModelConfig& config, std::uint64_t rows, ScratchLayout& at,
                   DeviceScratch& scratch);

// Bytes of the scratch, from address 0.
std::uint64_t scratch_bytes(const ModelConfig& config, const ScratchLimits& limits);
// The scratch at `address`.
DeviceScratch scratch_at(const ModelConfig& config, const ScratchLimits& limits,
                         std::uint64_t address);

}  // namespace moepack

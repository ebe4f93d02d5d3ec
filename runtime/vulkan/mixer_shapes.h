// How the kernels of mixers are cut for a model and a device: their specialization constants and
// grids (shaders/attention_args.h, shaders/delta_args.h). Results of attention depend on
// AttendShape and the number of splits, of GatedDeltaNet on nothing here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "formats/config/layer_spec.h"
#include "shaders/attention_args.h"
#include "shaders/latent_args.h"

namespace moepack {

// Of attend.
struct AttendShape {
  std::uint32_t lanes = 8;    // of a key
  std::uint32_t queries = 1;  // heads of a work group
  std::uint32_t tiles = 1;    // of queries, in each head of keys
  std::uint32_t splits = 1;   // of the keys

  std::uint32_t threads() const { return 8 * lanes; }
};

// `context`: most keys of a sequence. Enough work groups to fill a large GPU with one row; no more
// splits than there can be. subgroup_size: 8 … 128.
inline AttendShape attend_shape(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim,
                                std::uint32_t subgroup_size, std::uint64_t context) {
  constexpr std::uint32_t kMostLanes = 32;
  constexpr std::uint32_t kMostQueries = 4;
  constexpr std::uint32_t kWorkGroups = 256;  // two on each processor
  const std::uint32_t shared_by = heads / kv_heads;
  AttendShape shape;
  shape.lanes =
      std::clamp(std::bit_floor((head_dim + 7) / 8), 8U, std::min(kMostLanes, subgroup_size));
  shape.queries = std::min(std::bit_ceil(shared_by), kMostQueries);
  shape.tiles = (shared_by + shape.queries - 1) / shape.queries;
  const std::uint64_t most = (context + MOE_ATTEND_BLOCK - 1) / MOE_ATTEND_BLOCK;
  const std::uint32_t wanted =
      (kWorkGroups + kv_heads * shape.tiles - 1) / (kv_heads * shape.tiles);
  shape.splits = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::min<std::uint64_t>(wanted, most), 1, MOE_ATTEND_SPLITS));
  return shape;
}

inline AttendShape attend_shape(const HeadSizes& heads, std::uint32_t subgroup_size,
                                std::uint64_t context) {
  return attend_shape(heads.heads, heads.kv_heads, heads.head_dim, subgroup_size, context);
}
// Whether attend takes such heads, whose chunks of keys are of 8 values; attend_prompt takes all.
inline bool has_whole_chunks(const HeadSizes& heads) { return heads.head_dim % 8 == 0; }

// Work groups that share the keys of a row in latent_attend: enough to fill a large GPU with one
// row, at most one for each block of keys. `context`: most keys of a sequence.
inline std::uint32_t latent_splits(std::uint32_t heads, std::uint64_t context) {
  constexpr std::uint32_t kWorkGroups = 128;
  const std::uint32_t tiles = (heads + MOE_LATENT_TILE - 1) / MOE_LATENT_TILE;
  const std::uint64_t blocks = (context + MOE_LATENT_BLOCK - 1) / MOE_LATENT_BLOCK;
  const std::uint64_t splits = std::min<std::uint64_t>((kWorkGroups + tiles - 1) / tiles, blocks);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(splits, 1, MOE_LATENT_SPLITS));
}

// Of delta_step: two columns of S per thread for a head of 128 values; whole subgroups.
struct DeltaStepShape {
  std::uint32_t threads = 0;
  std::uint32_t columns = 0;  // per thread
};
inline DeltaStepShape delta_step_shape(std::uint32_t value_dim) {
  constexpr std::uint32_t kMostThreads = 512;
  constexpr std::uint32_t kLeastThreads = 128;  // whole subgroups of any size
  const std::uint32_t wanted = (8 * value_dim + kLeastThreads - 1) / kLeastThreads * kLeastThreads;
  const std::uint32_t threads = std::min(wanted, kMostThreads);
  return {threads, (8 * value_dim + threads - 1) / threads};
}

}  // namespace moepack

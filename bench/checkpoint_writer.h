// Writes tensors to safetensors shards with an index, block by block from several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/random_values.h"
#include "formats/base/status.h"

namespace moepack::bench {

struct ShardOptions {
  std::uint64_t shard_bytes = 5'000'000'000;  // a larger tensor has a shard of its own
  // Bytes of the first shard's header, padded with spaces; 0: as it comes.
  std::uint64_t header_bytes = 0;
  // Data starts at an odd offset; else headers are padded to a multiple of 8.
  bool odd_offsets = false;
  std::size_t threads = 1;
};

// A shard, which holds tensors [first, first + count) of the list.
struct Shard {
  std::string file;
  std::size_t first = 0;
  std::size_t count = 0;
  std::uint64_t data_bytes = 0;
};

// Cuts the list, in its order, into shards named as the hub does.
std::vector<Shard> plan_shards(std::span<const TensorSpec> tensors, const ShardOptions& options);

// The header of a shard without padding.
std::string shard_header(std::span<const TensorSpec> tensors);

// Called after each shard.
using ShardCallback = std::function<void(const Shard&)>;

// Writes all shards, then model.safetensors.index.json. Each file appears when it is complete.
// Memory: one block per thread and the largest header. kInvalidArgument when header_bytes is less
// than the header needs.
Status write_shards(std::span<const TensorSpec> tensors, std::span<const Shard> shards,
                    const RandomValues& values, const std::filesystem::path& directory,
                    const ShardOptions& options, const ShardCallback& done);

}  // namespace moepack::bench

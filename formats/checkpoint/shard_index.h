// model.safetensors.index.json: which shard of a checkpoint holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::uint32_t shard = 0;  // position in shards
  };
  std::vector<std::string> shards;  // sorted; plain file names
  std::vector<Entry> entries;       // sorted by tensor

  // nullptr when absent.
  const Entry* find(std::string_view tensor) const;
};

// Reads the text of an index. `metadata` and unknown keys are ignored (total_size is advisory);
// `weight_map` must be there, hold at least one tensor and name each once. Shard names come from
// outside and are opened, so anything but a plain file name (a separator, "..", a drive letter,
// control characters) is refused. kCorrupt with file, tensor and offset. Builds no tree.
Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& file);

constexpr const char* kShardIndexName = "model.safetensors.index.json";
// Reads `directory`/model.safetensors.index.json.
Result<ShardIndex> read_shard_index(const std::filesystem::path& directory);

}  // namespace moepack

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/checkpoint/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto result = moepack::parse_shard_index(text, "fuzz");
  if (!result.is_ok()) {
    if (result.status().message().empty()) std::abort();
    return 0;
  }
  const moepack::ShardIndex& index = result.value();
  for (const std::string& shard : index.shards) {
    if (shard.empty() || shard == ".." || shard.find('/') != std::string::npos) std::abort();
  }
  for (const auto& entry : index.entries) {
    if (entry.shard >= index.shards.size() || index.find(entry.tensor) != &entry) std::abort();
  }
  return 0;
}

// A HuggingFace checkpoint: a directory with config.json and safetensors, single or sharded with
// an index, plain or inside a HuggingFace cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/status.h"

namespace moepack {

// A tensor and the file that holds it. Pointers live as long as the Checkpoint.
struct TensorRef {
  const SafetensorsFile* shard = nullptr;
  const TensorInfo* info = nullptr;

  // Fills `out` with bytes [begin, begin + out.size()) of the tensor.
  Status read(std::uint64_t begin, std::span<std::byte> out) const;
  Where where() const { return {.file = shard->file().path(), .tensor = info->name}; }
};

class Checkpoint {
 public:
  // `path`: a snapshot directory, a HuggingFace cache entry (models--org--name, resolved through
  // refs/main or the only snapshot; several and no refs/main: kInvalidArgument with the list), or a
  // cache root holding exactly one model. Every mapped tensor must exist in its shard, every shard
  // must be there, and no name may stand in two shards or be missing from the index.
  static Result<Checkpoint> open(const std::filesystem::path& path);

  const std::filesystem::path& directory() const { return directory_; }  // resolved
  const ParsedConfig& config() const { return config_; }
  // All tensors of all shards, sorted by name.
  std::span<const TensorRef> tensors() const { return tensors_; }
  // nullptr when absent.
  const TensorRef* find(std::string_view name) const;
  // XXH3-64 over the sorted (shard name, size, header bytes): two checkpoints with the same
  // fingerprint hold the same tensors in the same places.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::filesystem::path directory_;
  ParsedConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::vector<TensorRef> tensors_;
  std::uint64_t fingerprint_ = 0;
};

// The snapshot that `path` stands for; `path` itself when it holds config.json.
Result<std::filesystem::path> resolve_checkpoint_directory(const std::filesystem::path& path);

}  // namespace moepack

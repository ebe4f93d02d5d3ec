// A HuggingFace checkpoint: a directory with config.json and safetensors, single or sharded with
// an index, plain or inside a HuggingFace cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/checkpoint/safetensors.h"
#include "formats/config/model_config.h"

namespace moepack {

// A tensor and the file that holds it. Pointers live as long as the Checkpoint.
struct TensorRef {
  const SafetensorsFile* shard = nullptr;
  const TensorInfo* info = nullptr;

  // Fills `out` with bytes [begin, begin + out.size()) of the tensor. A range that leaves the
  // tensor is kInvalidArgument; kNotFound means that only the shard's header is left. May be called
  // from any number of threads.
  Status read(std::uint64_t begin, std::span<std::byte> out) const;
  Where where() const { return {.file = shard->file().path(), .tensor = info->name}; }
};

class Checkpoint {
 public:
  // `path` as resolve_checkpoint_directory takes it. Reads config.json, then
  // model.safetensors.index.json and every shard it names, or else model.safetensors; of the shards
  // only the headers. Symbolic links are followed. Every mapped tensor must exist in its shard,
  // every shard must be there, and no name may stand in two shards or be missing from the index.
  // kNotFound: something is missing (it is named); kCorrupt: the parts contradict each other.
  // `saved_headers`: a directory with copies that SafetensorsFile::save_header made; a shard that
  // is not in the checkpoint any more is taken from there, without its data. "" for none.
  static Result<Checkpoint> open(const std::filesystem::path& path,
                                 const std::filesystem::path& saved_headers = {});
  // Opens the tensors alone, for looking at checkpoints that cannot be run: config.json is not read
  // and config() stays empty. `path` may also be one safetensors file.
  static Result<Checkpoint> open_tensors(const std::filesystem::path& path);

  const std::filesystem::path& directory() const { return directory_; }  // resolved
  const ParsedConfig& config() const { return config_; }
  // In the order of the index.
  std::span<const SafetensorsFile* const> shards() const { return shard_list_; }
  // All tensors of all shards, sorted by name.
  std::span<const TensorRef> tensors() const { return tensors_; }
  // nullptr when absent.
  const TensorRef* find(std::string_view name) const;
  // Two checkpoints with the same fingerprint hold the same tensors in the same places. XXH3-64
  // (seed 0) over one record per safetensors file, in byte order of the file names: the name
  // without directory, one zero byte, the file's size (u64, little-endian), and XXH3-64 of the
  // file's first 8 + N bytes, its header (u64, little-endian). config.json and the index are not
  // part of it.
  std::uint64_t fingerprint() const { return fingerprint_; }

  // Closes a shard's file for good: its tensors stay listed and cannot be read any more. No read of
  // them may be under way.
  void drop_data(const SafetensorsFile& shard);

 private:
  // Opens `single_file`, or with an empty path what the directory holds.
  Status open_shards(const std::filesystem::path& single_file,
                     const std::filesystem::path& saved_headers);

  std::filesystem::path directory_;
  ParsedConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::vector<const SafetensorsFile*> shard_list_;  // the same
  std::vector<TensorRef> tensors_;
  std::uint64_t fingerprint_ = 0;
};

// The directory that `path` stands for:
//   - `path` itself when it holds config.json;
//   - for a HuggingFace cache entry (models--org--name) the snapshot that refs/main names, or the
//     only one there is; kInvalidArgument with the list where there are several and no refs/main;
//   - for a cache root (it, or its folder hub, holds models--* folders) that of its only model, as
//     above; kInvalidArgument with the list where there are several models.
// For anything else it returns kNotFound, or kInvalidArgument for a path that is no directory.
Result<std::filesystem::path> resolve_checkpoint_directory(const std::filesystem::path& path);

}  // namespace moepack

#include "formats/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/paths.h"
#include "formats/checkpoint/shard_index.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = kShardIndexName;
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kBrokenLinkRemedy =
    "the download was not finished; download the model again";

using Shards = std::vector<std::unique_ptr<SafetensorsFile>>;

Status append_shard(Result<SafetensorsFile> opened, Shards& shards) {
  MOE_ASSIGN_OR_RETURN(SafetensorsFile shard, std::move(opened));
  shards.push_back(std::make_unique<SafetensorsFile>(std::move(shard)));
  return Status::ok();
}

// An error that names what a directory without model.safetensors and index holds instead.
Status no_weights(const fs::path& directory) {
  std::size_t safetensors = 0;
  std::string other;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string extension = at->path().extension().string();
    if (extension == ".safetensors") {
      MOE_RETURN_IF_ERROR(check_link(at->path(), kBrokenLinkRemedy));
      ++safetensors;
    }
    if (extension == ".gguf" || extension == ".bin" || extension == ".pth") {
      other = std::max(other, extension);
    }
  }
  const std::string name = directory.string();
  if (safetensors > 0) {
    return not_found({.file = name},
                     std::string(kIndexName) + " is missing beside " + std::to_string(safetensors) +
                         " safetensors files",
                     "download the index too");
  }
  if (!other.empty()) {
    return unsupported({.file = name}, "holds " + other + " files and no safetensors",
                       other == ".gguf"
                           ? "name one of the GGUF files, or download the model as safetensors"
                           : "download the safetensors form of the model");
  }
  return not_found({.file = name},
                   std::string(kSingleName) + " and " + std::string(kIndexName) + " are missing",
                   "download the weights too");
}

Result<Shards> open_indexed_shards(const fs::path& directory, const fs::path& saved_headers,
                                   const ShardIndex& index, const std::string& index_file) {
  Shards shards;
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    const fs::path path = directory / index.shards[i];
    const fs::path saved = saved_headers / index.shards[i];
    if (!is_there(path)) {
      if (!saved_headers.empty() && is_there(saved)) {
        MOE_RETURN_IF_ERROR(append_shard(SafetensorsFile::open_saved_header(saved), shards));
        continue;
      }
      MOE_RETURN_IF_ERROR(check_link(path, kBrokenLinkRemedy));
      const auto first = std::find_if(index.entries.begin(), index.entries.end(),
                                      [&](const auto& entry) { return entry.shard == i; });
      return not_found({.file = index_file, .tensor = first->tensor},
                       "its shard " + printable(path.string(), 4096) + " is missing",
                       "download that file too");
    }
    MOE_RETURN_IF_ERROR(append_shard(SafetensorsFile::open(path), shards));
  }
  return shards;
}

// All tensors of all shards by name; one that stands in two shards is an error.
Result<std::vector<TensorRef>> merge_tensors(const Shards& shards) {
  std::vector<TensorRef> tensors;
  for (const auto& shard : shards) {
    for (const TensorInfo& info : shard->tensors()) tensors.push_back({shard.get(), &info});
  }
  // Stable, so that the message below names the shards in order.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorRef& a, const TensorRef& b) {
    return a.info->name < b.info->name;
  });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const TensorRef& a, const TensorRef& b) { return a.info->name == b.info->name; });
  if (twice != tensors.end()) {
    return corrupt(std::next(twice)->where(),
                   "the tensor stands in " + printable(twice->shard->file().path(), 4096) + " too",
                   "remove the shard that does not belong to this model");
  }
  return tensors;
}

// Walks both lists together; they are sorted by name.
Status compare_with_index(const std::vector<TensorRef>& tensors, const Shards& shards,
                          const ShardIndex& index, const std::string& index_file) {
  auto tensor = tensors.begin();
  for (const ShardIndex::Entry& entry : index.entries) {
    if (tensor != tensors.end() && tensor->info->name < entry.tensor) break;
    const SafetensorsFile* mapped = shards[entry.shard].get();
    if (tensor == tensors.end() || tensor->info->name != entry.tensor) {
      return not_found({.file = mapped->file().path(), .tensor = entry.tensor},
                       "the index places the tensor here, but it is not there",
                       "download this file and the index again");
    }
    if (tensor->shard != mapped) {
      return corrupt(tensor->where(),
                     "the index places the tensor in " + printable(mapped->file().path(), 4096),
                     "download the index again");
    }
    ++tensor;
  }
  if (tensor == tensors.end()) return Status::ok();
  return corrupt(tensor->where(), "the tensor is not in " + printable(index_file, 4096),
                 "download the index again");
}

std::uint64_t fingerprint_of(const Shards& shards) {
  std::vector<std::pair<std::string, const SafetensorsFile*>> files;
  for (const auto& shard : shards) {
    files.emplace_back(fs::path(shard->file().path()).filename().string(), shard.get());
  }
  std::sort(files.begin(), files.end());
  ChecksumStream sum;
  for (const auto& [name, shard] : files) {
    std::array<std::byte, 16> numbers{};
    store_le(numbers.data(), shard->file_size());
    store_le(numbers.data() + 8, shard->header_checksum());
    sum.add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    sum.add(numbers);
  }
  return sum.finish();
}

}  // namespace

Status TensorRef::read(std::uint64_t begin, std::span<std::byte> out) const {
  const auto end = checked_add(begin, out.size());
  if (!end.has_value() || *end > info->size) {
    return make_error(StatusCode::kInvalidArgument, where(),
                      "bytes from " + std::to_string(begin) + " on, " + std::to_string(out.size()) +
                          " of them, leave the tensor of " + std::to_string(info->size));
  }
  if (!shard->has_data()) {
    return not_found(where(), "its shard was removed by a conversion with --reclaim",
                     "download the shard again");
  }
  return shard->file().read_at(info->offset + begin, out, info->name);
}

// Opens `single_file` alone, or the directory's shards where that is "".
Status Checkpoint::open_shards(const fs::path& single_file, const fs::path& saved_headers) {
  const fs::path index_path = directory_ / kIndexName;
  const std::string index_file = index_path.string();
  std::optional<ShardIndex> index;
  if (!single_file.empty()) {
    MOE_RETURN_IF_ERROR(append_shard(SafetensorsFile::open(single_file), shards_));
  } else if (is_there(index_path)) {
    MOE_ASSIGN_OR_RETURN(index, read_shard_index(directory_));
    MOE_ASSIGN_OR_RETURN(shards_,
                         open_indexed_shards(directory_, saved_headers, *index, index_file));
  } else if (is_there(directory_ / kSingleName)) {
    MOE_RETURN_IF_ERROR(append_shard(SafetensorsFile::open(directory_ / kSingleName), shards_));
  } else if (!saved_headers.empty() && is_there(saved_headers / kSingleName)) {
    MOE_RETURN_IF_ERROR(
        append_shard(SafetensorsFile::open_saved_header(saved_headers / kSingleName), shards_));
  } else {
    MOE_RETURN_IF_ERROR(check_link(index_path, kBrokenLinkRemedy));
    return no_weights(directory_);
  }
  MOE_ASSIGN_OR_RETURN(tensors_, merge_tensors(shards_));
  if (index.has_value()) {
    MOE_RETURN_IF_ERROR(compare_with_index(tensors_, shards_, *index, index_file));
  }
  fingerprint_ = fingerprint_of(shards_);
  for (const auto& shard : shards_) shard_list_.push_back(shard.get());
  return Status::ok();
}

Result<Checkpoint> Checkpoint::open(const fs::path& path, const fs::path& saved_headers) {
  Checkpoint checkpoint;
  MOE_ASSIGN_OR_RETURN(checkpoint.directory_, resolve_checkpoint_directory(path));
  const fs::path& directory = checkpoint.directory_;
  if (!is_there(directory / kConfigName)) {
    return not_found({.file = directory.string()}, "config.json is missing",
                     "the download is incomplete; download it too");
  }
  MOE_ASSIGN_OR_RETURN(checkpoint.config_, read_model_config(directory / kConfigName));
  MOE_RETURN_IF_ERROR(checkpoint.open_shards({}, saved_headers));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open_tensors(const fs::path& path) {
  Checkpoint checkpoint;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    checkpoint.directory_ = path.parent_path();
    MOE_RETURN_IF_ERROR(checkpoint.open_shards(path, {}));
    return checkpoint;
  }
  MOE_ASSIGN_OR_RETURN(checkpoint.directory_, resolve_checkpoint_directory(path));
  MOE_RETURN_IF_ERROR(checkpoint.open_shards({}, {}));
  return checkpoint;
}

void Checkpoint::drop_data(const SafetensorsFile& shard) {
  for (const auto& owned : shards_) {
    if (owned.get() == &shard) owned->drop_data();
  }
}

const TensorRef* Checkpoint::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorRef& tensor, std::string_view wanted) { return tensor.info->name < wanted; });
  return at != tensors_.end() && at->info->name == name ? &*at : nullptr;
}

}  // namespace moepack

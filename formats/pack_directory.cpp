#include "formats/pack_directory.h"

#include <algorithm>
#include <system_error>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/unfinished_work.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// A place that is no directory holds none.
Result<bool> has_layer_files(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return false;
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, list_directory(directory));
  return std::any_of(entries.begin(), entries.end(), [](const fs::path& entry) {
    const std::string name = entry.filename().string();
    return name.starts_with("layer_") && name.ends_with(".bin");
  });
}

Status lz4_error(const std::string& path) {
  return unsupported(Where{.file = path}, "is an LZ4 pack of flash-moe, which is not read here",
                     "use the pack that it was compressed from");
}

// One entry of the index at the head of an LZ4 layer file: u64 offset, u32 compressed size, u32 raw
// size for each expert, blobs following in order.
constexpr std::uint64_t kLz4EntryBytes = 16;

Result<bool> has_lz4_index(const File& file, std::uint32_t num_experts) {
  const std::uint64_t index_bytes = kLz4EntryBytes * num_experts;
  if (file.size() <= index_bytes) return false;
  std::vector<std::byte> index(index_bytes);
  MOE_RETURN_IF_ERROR(file.read_at(0, index));
  std::uint64_t end = index_bytes;
  for (std::size_t e = 0; e < num_experts; ++e) {
    const std::byte* entry = index.data() + e * kLz4EntryBytes;
    if (load_le<std::uint64_t>(entry) != end) return false;
    end += load_le<std::uint32_t>(entry + 8);
    if (end > file.size()) return false;
  }
  return end == file.size();
}

bool is_q3(const PackManifest& manifest) {
  return is_block(manifest.layouts.front().of(Projection::kGate).format);
}

Result<PackManifest> read_flashmoe(const fs::path& directory, const PackDimensions& dims) {
  const fs::path layout = directory / kPackManifestName;
  const fs::path tiered = directory / kTieredManifestName;
  const auto read = [](const fs::path& path) { return read_text_file(path, kMaxManifestBytes); };
  if (!is_there(tiered)) {
    MOE_ASSIGN_OR_RETURN(const std::string text, read(layout));
    return parse_flashmoe_layout(text, layout.string(), dims);
  }
  MOE_ASSIGN_OR_RETURN(const std::string text, read(tiered));
  MOE_ASSIGN_OR_RETURN(PackManifest manifest, parse_flashmoe_tiered(text, tiered.string(), dims));
  if (is_there(layout)) {
    MOE_ASSIGN_OR_RETURN(const std::string layout_text, read(layout));
    MOE_RETURN_IF_ERROR(check_flashmoe_tiered_layout(layout_text, layout.string(), dims));
  }
  return manifest;
}

}  // namespace

Result<PackKind> detect_pack(const fs::path& directory) {
  if (is_there(directory / kUnfinishedMarker)) return PackKind::kUnfinished;
  const bool has_layout = is_there(directory / kPackManifestName);
  const bool has_tiered = is_there(directory / kTieredManifestName);
  if (has_layout) {
    MOE_ASSIGN_OR_RETURN(const std::string text,
                         read_text_file(directory / kPackManifestName, kMaxManifestBytes));
    if (text.find("\"format_version\"") != std::string::npos) return PackKind::kNative;
  }
  MOE_ASSIGN_OR_RETURN(const bool has_files, has_layer_files(directory));
  if (has_files && directory_name(directory).ends_with("_lz4")) return PackKind::kLz4;
  if (has_layout || has_tiered) return PackKind::kFlashMoe;
  return has_files ? PackKind::kUndescribed : PackKind::kNone;
}

bool is_meant_as_pack(const fs::path& entry) {
  std::error_code ignored;
  if (!fs::is_directory(entry, ignored)) return false;
  return directory_name(entry).starts_with(kDefaultPackName) ||
         is_there(entry / kPackManifestName) || is_there(entry / kTieredManifestName);
}

const char* flashmoe_manifest_name(const fs::path& directory) {
  return is_there(directory / kTieredManifestName) ? kTieredManifestName : kPackManifestName;
}

Result<PackManifest> read_pack_directory(const fs::path& directory, const PackDimensions& dims,
                                         std::span<const fs::path> further) {
  const std::string path = directory.string();
  MOE_ASSIGN_OR_RETURN(const PackKind kind, detect_pack(directory));
  switch (kind) {
    case PackKind::kNative:
      return read_pack_manifest(directory, further);
    case PackKind::kLz4:
      return lz4_error(path);
    case PackKind::kUndescribed:
    case PackKind::kUnfinished:
      return undescribed_pack_error(directory);
    case PackKind::kNone:
      return not_found(Where{.file = path}, "holds neither a manifest nor layer files",
                       "name a directory such as packed_experts");
    default:
      break;
  }
  MOE_ASSIGN_OR_RETURN(PackManifest manifest, read_flashmoe(directory, dims));
  MOE_RETURN_IF_ERROR(
      check_foreign_layer_files(directory, manifest, dims, flashmoe_manifest_name(directory)));
  return manifest;
}

Status check_foreign_layer_files(const fs::path& directory, const PackManifest& manifest,
                                 const PackDimensions& dims, std::string_view manifest_name) {
  for (const LayerEntry& layer : manifest.layers) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / layer.file));
    if (file.size() == layer.file_size) continue;
    const bool whole_records = file.size() % dims.num_experts == 0;
    if (whole_records && is_q3(manifest) &&
        is_abandoned_q3_record(dims, file.size() / dims.num_experts)) {
      return abandoned_q3_error(file.path());
    }
    MOE_ASSIGN_OR_RETURN(const bool lz4, has_lz4_index(file, dims.num_experts));
    if (lz4) return lz4_error(file.path());
    return corrupt(Where{.file = file.path()},
                   "is " + std::to_string(file.size()) + " bytes long, but " +
                       std::string(manifest_name) + " gives " + std::to_string(layer.file_size),
                   "the file is incomplete or the pack belongs to another model");
  }
  return Status::ok();
}

Status undescribed_pack_error(const fs::path& directory) {
  if (is_there(directory / kUnfinishedMarker)) {
    return unfinished_work_error(directory, StatusCode::kNotFound);
  }
  const std::string path = directory.string();
  return not_found(
      Where{.file = path}, "holds layer files but no manifest",
      "say what they are with moepack import " + printable(path) + " --expert-format FORMAT");
}

}  // namespace moepack

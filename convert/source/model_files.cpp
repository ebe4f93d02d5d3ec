#include "convert/source/model_files.h"

#include <algorithm>
#include <cassert>

#include "formats/base/paths.h"
#include "formats/pack/resident_files.h"
#include "formats/pack_directory.h"

namespace moepack {

namespace fs = std::filesystem;

Result<PackManifest> read_lone_pack(const fs::path& directory) {
  MOE_ASSIGN_OR_RETURN(const PackKind kind, detect_pack(directory));
  if (kind != PackKind::kFlashMoe) return read_pack_directory(directory, {});
  const fs::path model = directory_above(directory);
  auto config = read_model_config(model / "config.json");
  if (config.status().code() == StatusCode::kNotFound) {
    return not_found(Where{.file = directory.string()},
                     "its manifest does not state the model's dimensions, and no config.json "
                     "stands in the directory above",
                     "put the pack into its model's directory");
  }
  MOE_RETURN_IF_ERROR(config.status());
  return read_pack_directory(directory, pack_dimensions(config.value().model));
}

Result<ResidentData> ResidentData::open(const fs::path& model, const ResidentManifest& manifest) {
  ResidentData data;
  for (const ResidentFile& entry : resident_files(manifest)) {
    MOE_ASSIGN_OR_RETURN(File file, File::open(model / entry.name));
    data.parts_.push_back({.begin = entry.begin, .size = entry.size, .file = std::move(file)});
  }
  return data;
}

FileRange ResidentData::range(std::uint64_t offset, std::uint64_t bytes) const {
  const auto next =
      std::upper_bound(parts_.begin(), parts_.end(), offset,
                       [](std::uint64_t at, const Part& part) { return at < part.begin; });
  assert(next != parts_.begin());
  const Part& part = *std::prev(next);
  return {.file = &part.file, .offset = offset - part.begin, .bytes = bytes};
}

StoredMatrix ResidentData::matrix(const ResidentTensor& tensor) const {
  StoredMatrix matrix{.format = tensor.format, .rows = tensor.rows, .cols = tensor.cols};
  for (Component c : stored_components(tensor.format)) {
    matrix.ranges[c] = range(tensor.offsets[c], tensor.bytes[c]);
  }
  return matrix;
}

}  // namespace moepack

// The files of a model directory or of a pack, whoever wrote them: manifests read, data opened.
#pragma once

#include <filesystem>
#include <vector>

#include "convert/source/stored_matrix.h"
#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// The pack in `directory`. Packs of the flash-moe engines do not state all dimensions of the model:
// they are taken from the config.json in the directory above, which must be there for them.
Result<PackManifest> read_lone_pack(const std::filesystem::path& directory);

// The data of resident tensors: model_weights.bin, or the files that take its place.
class ResidentData {
 public:
  // Opens every file; sizes were checked when the manifest was read.
  static Result<ResidentData> open(const std::filesystem::path& model,
                                   const ResidentManifest& manifest);

  // `begin`: the logical offset of the first byte.
  struct Part {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    File file;
  };
  const std::vector<Part>& parts() const { return parts_; }  // ascending
  // Where bytes [offset, offset + bytes) of the logical data lie; they never cross files. Borrowed
  // from this object.
  FileRange range(std::uint64_t offset, std::uint64_t bytes) const;
  StoredMatrix matrix(const ResidentTensor& tensor) const;

 private:
  std::vector<Part> parts_;
};

}  // namespace moepack

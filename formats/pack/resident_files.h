// The files that hold resident tensors when they are not one model_weights.bin of ours: those of
// the flash-moe engines, which may be split. Offsets in manifests are logical: byte `begin` is the
// first of a file, and a component never crosses from one file to the next. Fewer than 64 bytes lie
// between two files, so that the logical data are hardly larger than the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json_fields.h"
#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// The files of a manifest, whether it lists them or not.
std::vector<ResidentFile> resident_files(const ResidentManifest& manifest);

// `"files": [{"file": "model_weights.bin", "begin": 0, "size": 4096}, …]` without the key.
std::string resident_files_text(std::span<const ResidentFile> files);
// Reads that list: plain names, each once, ascending without overlap, the first at 0, the last
// ending at `data_size`.
Result<std::vector<ResidentFile>> parse_resident_files(const JsonFields& root,
                                                       std::uint64_t data_size);

// Bytes [begin, begin + bytes) of the logical data, called `name` in errors.
struct ResidentExtent {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::string name;
};
// kCorrupt unless every extent lies inside one file and none overlaps another. Sorts `extents`.
// Errors are about members of `tensors`.
Status check_resident_extents(const JsonFields& tensors, std::vector<ResidentExtent>& extents,
                              std::span<const ResidentFile> files);

// Checks that every file stands in `directory` with its exact size.
Status check_resident_file_sizes(const std::filesystem::path& directory,
                                 const ResidentManifest& manifest);

}  // namespace moepack

// A model in GGUF form: one file, or the parts that llama.cpp's gguf-split makes of one.
//
// Source: llama.cpp's loader. Parts are called PREFIX-00001-of-00003.gguf and carry split.no (from
// 0), split.count and split.tensors.count (of all parts together). All other metadata stands in the
// first part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/gguf/gguf.h"

namespace moepack {

// A tensor and the part that holds it. Pointers live as long as the GgufModel, also when that is
// moved.
struct GgufTensor {
  const GgufFile* part = nullptr;
  const GgufTensorInfo* info = nullptr;

  // Fills `out` with bytes [begin, begin + out.size()) of the tensor as a little-endian file holds
  // them. In a big-endian file both numbers must be multiples of info->type.block_bytes. A range
  // that leaves the tensor or breaks that rule is kInvalidArgument; a type without a defined
  // big-endian form is kUnsupported. May be called from any number of threads.
  Status read(std::uint64_t begin, std::span<std::byte> out) const;
  // kUnsupported where read() would return that.
  Status check_readable() const;
  Where where() const {
    return {.file = part->file().path(), .tensor = info->name, .offset = info->offset};
  }
};

// Unchanging once it is open: const functions may be called from any number of threads.
class GgufModel {
 public:
  // `path` is the file, or any of the parts; the other parts are looked for beside it under the
  // names that the pattern gives. Reads heads only. kNotFound: a part is missing; kCorrupt: the
  // parts do not belong together, or what GgufFile::open says. Each message names the part.
  static Result<GgufModel> open(const std::filesystem::path& path);

  // The parts in order; there is at least one.
  std::span<const GgufFile> parts() const { return parts_; }
  // The metadata of the first part.
  const GgufMetadata& metadata() const { return parts_.front().metadata(); }
  // All tensors of all parts, sorted by name.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  // nullptr when absent.
  const GgufTensor* find(std::string_view name) const;
  // Computed as Checkpoint::fingerprint, the header being all bytes up to the end of the last
  // tensor's entry.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Status add_part(GgufFile part);
  // Those beside `given`, which lies at `path`.
  Status open_other_parts(const std::filesystem::path& path, const GgufFile& given);
  Status open_parts(const std::filesystem::path& path);
  Status merge_tensors();

  std::vector<GgufFile> parts_;
  std::vector<GgufTensor> tensors_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace moepack

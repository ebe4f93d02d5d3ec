// One GGUF file: its head checked, metadata and tensors listed, bytes read on demand.
//
// Source: the GGUF specification (ggml/docs/gguf.md) and ggml's gguf.cpp; where they differ, the
// stricter rule holds. Versions 2 and 3 are read, in either byte order (version 1 had other counts,
// and ggml refuses it too). The reader checks in this order: magic, version, counts against what
// the file could hold; every key and value (formats/gguf/gguf_metadata.h); general.alignment (u32,
// a power of two from 8 on); for each tensor that its name has 1 to 63 bytes, that it has at most
// four dimensions and none of them is zero, that no product overflows, that its type is known, that
// a row is whole blocks, and that its data begin at the next multiple of the alignment behind the
// tensor before it and lie within the file. Bytes behind the last tensor belong to nobody and are
// allowed, as ggml allows them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_metadata.h"
#include "formats/weights/ggml_types.h"

namespace moepack {

// The first bytes of a file of either byte order.
constexpr std::string_view kGgufMagic = "GGUF";
// Whether a file begins with them; false too where it cannot be read.
bool has_gguf_magic(const File& file);

constexpr std::uint64_t kMaxGgufTensors = std::uint64_t{1} << 20;

struct GgufTensorInfo {
  std::string name;  // any bytes: print it with printable()
  GgmlType type;
  // Row-major, the contiguous dimension (ggml's ne[0], the input of a matrix) last; the reverse of
  // the file's order. Empty: one element.
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;  // absolute, from the start of the file
  std::uint64_t size = 0;    // bytes, without padding
};

// Unchanging once it is open: const functions may be called from any number of threads.
class GgufFile {
 public:
  // Reads the head; the data section is not touched. Memory: the names, and about 150 bytes a
  // tensor. Errors name the file, the key or tensor and the offset: kCorrupt for a failed check,
  // kUnsupported for a version or tensor type that is not read here.
  static Result<GgufFile> open(const std::filesystem::path& path);

  // read_at may be called from any number of threads.
  const File& file() const { return *file_; }
  std::uint32_t version() const { return version_; }
  bool is_big_endian() const { return is_big_endian_; }
  std::uint64_t alignment() const { return alignment_; }
  const GgufMetadata& metadata() const { return metadata_; }
  // In the order of the file.
  std::span<const GgufTensorInfo> tensors() const { return tensors_; }
  // XXH3 of the bytes before the padding of the data section, for fingerprints.
  std::uint64_t header_checksum() const { return header_checksum_; }

 private:
  Status read_counts(GgufCursor& cursor, std::uint64_t& tensors, std::uint64_t& keys);
  Status read_alignment();
  Status read_tensors(GgufCursor& cursor, std::uint64_t count);
  Status place_tensors(std::span<const std::uint64_t> starts, std::uint64_t data_start);

  std::shared_ptr<const File> file_;
  std::uint32_t version_ = 0;
  bool is_big_endian_ = false;
  std::uint64_t alignment_ = 32;
  GgufMetadata metadata_;
  std::vector<GgufTensorInfo> tensors_;
  std::uint64_t header_checksum_ = 0;
};

}  // namespace moepack

// One safetensors file: header checked, tensors listed, bytes read on demand.
// Source: the safetensors format and the checks of its reference implementation, all ten, in its
// order:
//    1  the file has at least 8 bytes
//    2  the header has at most 100,000,000 bytes
//    3  8 + the header's length is at most the file's size
//    4  the header is UTF-8
//    5  the header is a JSON object of the right form
//    6  in order of offsets, the tensors leave no hole and do not overlap, and begin <= end
//    7  the product of a shape, from left to right, and its bits do not overflow
//    8  a tensor takes whole bytes (F4 and F6 may fail this)
//    9  offsets agree with shape and dtype
//   10  the last tensor ends where the file ends
// Beyond them, a key that stands twice is refused anywhere in the header. Alignment is not
// promised: writers in the wild leave the header unpadded, so data may start at odd offsets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/dtype.h"
#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

// Longest header that the format allows, in bytes.
constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

struct TensorInfo {
  std::string name;  // any text, control characters and NUL included: print it with printable()
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;  // row-major; empty: one element; a dimension may be 0
  std::uint64_t offset = 0;          // absolute, from the start of the file; any alignment
  std::uint64_t size = 0;            // bytes
};

class SafetensorsFile {
 public:
  // Reads and checks the header; the data section is not touched. Memory: a small multiple of the
  // header. Errors name the file, the tensor and the offset: kCorrupt for a failed check,
  // kUnsupported for a dtype unknown to the format.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  // Opens a shard whose data is gone, from what save_header kept of it: it has the tensors, the
  // size and the checksum of the original. Its name is that of the copy, so the copy must bear the
  // shard's own name.
  static Result<SafetensorsFile> open_saved_header(const std::filesystem::path& copy);
  // Writes the 8 + N header bytes and the file's size (u64, little-endian) to `copy`, atomically.
  Status save_header(const std::filesystem::path& copy) const;

  // The shard's file, or for a saved header the copy. Its read_at may be called from any number of
  // threads.
  const File& file() const { return file_; }
  // Size of the shard, header and data together, in bytes.
  std::uint64_t file_size() const { return file_size_; }
  // False for a saved header: no tensor can be read.
  bool has_data() const { return has_data_; }
  // Closes the file for good; from now on the object behaves as a saved header does. No read may be
  // under way.
  void drop_data() {
    file_.close();
    has_data_ = false;
  }
  // Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // nullptr when absent.
  const TensorInfo* find(std::string_view name) const;
  // XXH3 of the 8 + N header bytes, for fingerprints.
  std::uint64_t header_checksum() const { return header_checksum_; }

 private:
  SafetensorsFile(File file, std::uint64_t file_size, bool has_data)
      : file_(std::move(file)), file_size_(file_size), has_data_(has_data) {}
  static Result<SafetensorsFile> read_header(File file, std::uint64_t file_size, bool has_data);

  File file_;
  std::uint64_t file_size_ = 0;
  bool has_data_ = true;
  std::vector<TensorInfo> tensors_;
  std::uint64_t header_checksum_ = 0;
};

// Parses a header from memory, with checks 2 to 10 (the fuzz target's entry). `header` is the JSON
// text, which starts at byte 8 of a file that is `file_size` bytes long. Tensors come sorted by
// name.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t file_size,
                                                         const std::string& file);

}  // namespace moepack

// One safetensors file: header checked, tensors listed, bytes read on demand.
// Source: the safetensors format and the checks of its reference implementation, all ten.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/dtype.h"
#include "formats/file.h"
#include "formats/status.h"

namespace moepack {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;  // row-major; empty: one element
  std::uint64_t offset = 0;          // absolute, from the start of the file; any alignment
  std::uint64_t size = 0;            // bytes
};

class SafetensorsFile {
 public:
  // Reads and checks the header; the data section is not touched.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const File& file() const { return file_; }
  // Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // nullptr when absent.
  const TensorInfo* find(std::string_view name) const;
  // XXH3 of the 8 + N header bytes, for fingerprints.
  std::uint64_t header_checksum() const { return header_checksum_; }

 private:
  explicit SafetensorsFile(File file) : file_(std::move(file)) {}
  File file_;
  std::vector<TensorInfo> tensors_;
  std::uint64_t header_checksum_ = 0;
};

// The header alone, from memory (the fuzz target's entry). `header` is the JSON text, which starts
// at byte 8 of a file that is `file_size` bytes long. Tensors come sorted by name.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t file_size,
                                                         const std::string& file);

}  // namespace moepack

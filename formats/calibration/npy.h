// Arrays of floats in NumPy's .npy files. Source: NumPy's documentation, "numpy.lib.format", format
// versions 1.0 and 2.0:
//
//   "\x93NUMPY"; u8 major; u8 minor; header length (u16 in version 1, u32 in 2, little-endian);
//   header: a Python literal of a dict, `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
//   }`, padded with spaces, ending in "\n"; then the data
//
// The literal is parsed, never evaluated; what NumPy does not write itself is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/dtype.h"
#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

// Bytes of magic, version, length and the longest header that is read (NumPy's own limit).
constexpr std::uint64_t kMaxNpyHead = 12 + 10'000;

struct NpyArray {
  DType dtype = DType::kF32;         // kF32 ('<f4') or kF64 ('<f8')
  std::vector<std::uint64_t> shape;  // C order
  std::uint64_t elements = 0;        // their product
  std::uint64_t data_offset = 0;     // bytes from the start of the file; the data fill the rest
};

// Parses `head`, the first min(file_size, kMaxNpyHead) bytes of the file, or more. kCorrupt for a
// header that is none or contradicts `file_size`; kUnsupported for other versions, types and
// orders.
Result<NpyArray> parse_npy_header(std::span<const std::byte> head, std::uint64_t file_size,
                                  const std::string& file);

class NpyFile {
 public:
  static Result<NpyFile> open(const std::filesystem::path& path);
  const NpyArray& array() const { return array_; }
  const File& file() const { return file_; }
  // Reads all elements as float32, rounding f8. `out` has array().elements floats; f8 passes
  // through a block of 1 MiB. May be called from any number of threads.
  Status read(std::span<float> out) const;

 private:
  NpyFile(File file, NpyArray array) : file_(std::move(file)), array_(std::move(array)) {}
  File file_;
  NpyArray array_;
};

}  // namespace moepack

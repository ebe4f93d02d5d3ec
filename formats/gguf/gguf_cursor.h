// Reads the head of a GGUF file from front to back: numbers in the file's byte order, strings, and
// skipping, each checked against the end of the file before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

// Loads a number of `size` bytes (at most 8) in the given byte order, as an unsigned one.
std::uint64_t load_number(const std::byte* at, std::size_t size, bool big_endian);

// Reads sequentially, from one thread, and holds one window of the file in memory. Errors name the
// file and the offset of what was wanted.
class GgufCursor {
 public:
  // `file` outlives the cursor. Starts at byte `position`.
  explicit GgufCursor(const File& file, std::uint64_t position = 0)
      : file_(file), position_(position) {}

  void set_big_endian(bool big_endian) { big_endian_ = big_endian; }
  bool big_endian() const { return big_endian_; }
  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }
  const File& file() const { return file_; }

  // `what` names the thing in errors: "the number of tensors".
  Status read(std::span<std::byte> out, std::string_view what);
  Result<std::uint64_t> number(std::size_t size, std::string_view what);
  Result<std::uint32_t> u32(std::string_view what);
  Result<std::uint64_t> u64(std::string_view what) { return number(8, what); }
  // Reads a u64 length and that many bytes; a length above `max_bytes` is an error.
  Result<std::string> string(std::uint64_t max_bytes, std::string_view what);
  Status skip(std::uint64_t bytes, std::string_view what);

  // Makes an error about the bytes at `offset`.
  Status error(std::uint64_t offset, std::string_view what,
               std::string_view remedy = "the file is damaged; download or make it again") const;

 private:
  Status cut_short(std::uint64_t wanted, std::string_view what) const;

  const File& file_;
  std::uint64_t position_ = 0;
  bool big_endian_ = false;
  std::uint64_t window_begin_ = 0;
  std::vector<std::byte> window_;
};

}  // namespace moepack

// One expert record on its way into a layer file: bytes arrive in order, are summed and written in
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/checksum.h"
#include "formats/file.h"
#include "formats/status.h"

namespace moepack {

class RecordStream {
 public:
  // Writes to `file` from byte `offset` on; `buffer` is used in between and must be empty. Both
  // outlive the stream.
  RecordStream(AtomicFile& file, std::uint64_t offset, std::vector<std::byte>& buffer)
      : file_(file), offset_(offset), buffer_(buffer) {}

  // `size` bytes to be filled before the next call.
  std::span<std::byte> append(std::size_t size) {
    buffer_.resize(buffer_.size() + size);
    return std::span(buffer_).last(size);
  }
  // Writes what is buffered once it is worth a call of the system.
  Status flush_full() { return buffer_.size() >= kBlockBytes ? flush() : Status::ok(); }
  // Writes the rest; XXH3-64 of the whole record.
  Result<std::uint64_t> finish() {
    MOE_RETURN_IF_ERROR(flush());
    return sum_.finish();
  }

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

  Status flush() {
    sum_.add(buffer_);
    MOE_RETURN_IF_ERROR(file_.write_at(offset_, buffer_));
    offset_ += buffer_.size();
    buffer_.clear();
    return Status::ok();
  }

  AtomicFile& file_;
  std::uint64_t offset_;
  std::vector<std::byte>& buffer_;
  ChecksumStream sum_;
};

}  // namespace moepack

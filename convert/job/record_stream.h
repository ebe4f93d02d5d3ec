// One expert record on its way into a layer file: bytes arrive in order, are summed and written in
// blocks of whole pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

class RecordStream {
 public:
  // Writes to `file` from byte `offset` on. `buffer` is used in between and grows to what is
  // needed; its contents do not matter. Both outlive the stream.
  RecordStream(AtomicFile& file, std::uint64_t offset, AlignedBuffer& buffer)
      : file_(file), offset_(offset), buffer_(buffer) {}

  // `size` bytes to be filled before the next call.
  Result<std::span<std::byte>> append(std::size_t size);
  // Writes what is buffered once it is worth a call of the system.
  Status flush_full() {
    return used_ >= kBlockBytes ? flush(used_ / kDirectUnit * kDirectUnit) : Status::ok();
  }
  // Writes the rest; XXH3-64 of the whole record.
  Result<std::uint64_t> finish();

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
  Status flush(std::size_t size);

  AtomicFile& file_;
  std::uint64_t offset_;
  AlignedBuffer& buffer_;
  std::size_t used_ = 0;
  ChecksumStream sum_;
};

}  // namespace moepack

// A file as memory, read by a copy that a truncated file cannot end the program in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

class MappedFile {
 public:
  MappedFile() = default;
  // Maps all of `file`. kUnsupported where the system forbids the guarded copy, kIo when it gives
  // no addresses.
  static Result<MappedFile> open(const File& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  bool is_open() const { return data_ != nullptr; }

  // Asks the system to bring these bytes.
  void announce(std::uint64_t offset, std::uint64_t bytes) const;
  // Copies from `offset` on, which is inside the file. Gives how many bytes were copied, 0 when
  // there are none any more, or a negative error number. The kernel copies: where the file has
  // become shorter, memory that is touched would end the program (SIGBUS), and a system call only
  // says EFAULT. From any thread.
  long copy(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  MappedFile(std::byte* data, std::uint64_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace moepack

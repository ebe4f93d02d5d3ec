// A file opened once more for reads past the page cache (O_DIRECT), and what the page cache has.
#pragma once

#include <cstdint>

#include "formats/base/file.h"

namespace moepack {

class DirectFile {
 public:
  DirectFile() = default;
  // Opens what `file` has open again, whatever its name leads to by now, and tries a read: some
  // file systems take the flag and refuse the reads. Not open where that cannot be.
  static DirectFile open(const File& file);
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  bool is_open() const { return fd_ >= 0; }
  // Reads take offsets, sizes and memory at multiples of kDirectUnit; the last one may end behind
  // the file and gives what there is.
  int fd() const { return fd_; }

 private:
  explicit DirectFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Whether the byte of the file at `offset` can be read without the disk. False where the file
// system cannot tell.
bool is_cached(int fd, std::uint64_t offset);

}  // namespace moepack

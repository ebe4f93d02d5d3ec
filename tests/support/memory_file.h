// A file in memory that has a path, so that readers can open it like any other file.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace moepack::test {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("test", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
    while (!bytes.empty()) {
      const ssize_t written = write(fd_, bytes.data(), bytes.size());
      if (written <= 0) std::abort();
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace moepack::test

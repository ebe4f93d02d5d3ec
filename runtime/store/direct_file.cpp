#include "runtime/store/direct_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>
#include <string>
#include <utility>

namespace moepack {
namespace {

// A first block that the disk gives at this unit.
bool can_read(int fd) {
  Result<AlignedBuffer> memory = AlignedBuffer::allocate(kDirectUnit, kDirectUnit);
  if (!memory.is_ok()) return false;
  while (::pread(fd, memory.value().data(), kDirectUnit, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

DirectFile DirectFile::open(const File& file) {
  const std::string self = "/proc/self/fd/" + std::to_string(file.fd());
  DirectFile direct(::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK));
  if (direct.is_open() && !can_read(direct.fd())) return {};
  return direct;
}

DirectFile::DirectFile(DirectFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

DirectFile::~DirectFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool is_cached(int fd, std::uint64_t offset) {
  char byte = 0;
  const iovec place{.iov_base = &byte, .iov_len = 1};
  return ::preadv2(fd, &place, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

}  // namespace moepack

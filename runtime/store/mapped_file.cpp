#include "runtime/store/mapped_file.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace moepack {
namespace {

// -1 with errno, as the system call.
long copy_by_kernel(const std::byte* from, std::span<std::byte> out) {
  const iovec local{.iov_base = out.data(), .iov_len = out.size()};
  // The interface has no const; the kernel only reads here.
  const iovec remote{.iov_base = const_cast<std::byte*>(from),  // NOLINT
                     .iov_len = out.size()};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
}

}  // namespace

Result<MappedFile> MappedFile::open(const File& file) {
  const std::byte probe{0x5a};
  std::byte seen{};
  if (copy_by_kernel(&probe, std::span(&seen, 1)) != 1 || seen != probe) {
    return unsupported(Where{.file = file.path()},
                       std::string("cannot be read as memory: the system forbids the guarded copy "
                                   "(process_vm_readv): ") +
                           std::strerror(errno),
                       "give --io buffered or direct");
  }
  if (file.size() == 0) return MappedFile();
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.fd(), 0);
  if (data == MAP_FAILED) {
    return make_error(StatusCode::kIo, Where{.file = file.path()},
                      std::string("cannot be mapped: ") + std::strerror(errno),
                      "give --io buffered or direct");
  }
  return MappedFile(static_cast<std::byte*>(data), file.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::announce(std::uint64_t offset, std::uint64_t bytes) const {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t end = std::min(size_, offset + bytes);
  if (begin < end) (void)::madvise(data_ + begin, end - begin, MADV_WILLNEED);
}

long MappedFile::copy(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= size_) return 0;
  const long got = copy_by_kernel(data_ + offset,
                                  out.first(std::min<std::uint64_t>(out.size(), size_ - offset)));
  if (got >= 0) return got;
  return errno == EFAULT ? 0 : -errno;
}

}  // namespace moepack

#include "formats/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/large_pages.h"
#include "formats/base/paths.h"
#include "formats/base/write_remedy.h"

namespace moepack {
namespace {

constexpr std::size_t kLeastInLargePages = 8 * kLargePage;

// `remedy`: where the error itself names none.
Status os_error(const std::string& path, std::string_view action, int error,
                std::string_view remedy = {}) {
  const StatusCode code = error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo;
  return make_error(code, Where{.file = path}, std::string(action) + ": " + std::strerror(error),
                    write_remedy(error, remedy));
}

}  // namespace

Result<File> File::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    MOE_RETURN_IF_ERROR(check_link(path, "download or copy the file that it leads to"));
    return os_error(name, "cannot open", error, "check the path and its permissions");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return os_error(name, "cannot stat", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return make_error(StatusCode::kInvalidArgument, Where{.file = name}, "is not a regular file");
  }
  return File(fd, name, static_cast<std::uint64_t>(info.st_size));
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() { close(); }

void File::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool File::is_at(const std::filesystem::path& path) const {
  struct stat own {};
  struct stat named {};
  return ::fstat(fd_, &own) == 0 && ::stat(path.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

Status File::read_at(std::uint64_t offset, std::span<std::byte> out,
                     std::string_view tensor) const {
  const auto end = checked_add(offset, out.size());
  if (!end.has_value() || *end > size_) {
    return corrupt(Where{.file = path_, .tensor = tensor, .offset = offset},
                   "file ends at byte " + std::to_string(size_) + ", " +
                       std::to_string(out.size()) + " bytes were wanted here",
                   "it is cut short; copy or convert it again");
  }
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return make_error(StatusCode::kIo,
                        Where{.file = path_, .tensor = tensor, .offset = offset + done},
                        std::string("cannot read: ") + std::strerror(errno),
                        errno == EIO ? "the disk may be failing; copy the file elsewhere" : "");
    }
    if (got == 0) {
      return make_error(StatusCode::kIo,
                        Where{.file = path_, .tensor = tensor, .offset = offset + done},
                        "file became shorter while it was read");
    }
    done += static_cast<std::size_t>(got);
  }
  return Status::ok();
}

void File::drop_cache() const { (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& final_path) {
  std::filesystem::path temporary = final_path;
  temporary += ".tmp";
  // Never through a link, and never into a file that something else may hold open.
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  int fd = ::open(temporary.c_str(), kFlags, 0644);
  if (fd < 0 && errno == EEXIST && ::unlink(temporary.c_str()) == 0) {
    fd = ::open(temporary.c_str(), kFlags, 0644);
  }
  if (fd < 0) return os_error(temporary.string(), "cannot create", errno);
  return AtomicFile(fd, std::move(temporary), final_path);
}

AtomicFile AtomicFile::adopt(int fd, std::filesystem::path temporary,
                             std::filesystem::path final_path) {
  return AtomicFile(fd, std::move(temporary), std::move(final_path));
}

Result<AtomicFile> AtomicFile::create_unnamed(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / ".moepack-scratch-XXXXXX";
  std::string name = path.string();
  // Never a name at all, where the file system can do that.
  const int nameless = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0) return AtomicFile(nameless, std::move(name), path);
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return os_error(name, "cannot create", errno, "check the directory's permissions");
  ::unlink(name.c_str());
  return AtomicFile(fd, std::move(name), path);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      direct_fd_(std::exchange(other.direct_fd_, -1)),
      temporary_(std::move(other.temporary_)),
      final_(std::move(other.final_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(direct_fd_, other.direct_fd_);
  std::swap(temporary_, other.temporary_);
  std::swap(final_, other.final_);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (direct_fd_ >= 0) ::close(std::exchange(direct_fd_, -1));
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = -1;
  ::unlink(temporary_.c_str());
}

void AtomicFile::write_directly() {
  // Larger pages could be written both ways in part.
  if (direct_fd_ >= 0 || ::sysconf(_SC_PAGESIZE) > static_cast<long>(kDirectUnit)) return;
  // By descriptor, because the file may have no name.
  const std::string self = "/proc/self/fd/" + std::to_string(fd_);
  direct_fd_ = ::open(self.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
}

int AtomicFile::write_some(int fd, std::uint64_t offset, std::span<const std::byte> data,
                           std::size_t& done) {
  while (done < data.size()) {
    const ssize_t put =
        ::pwrite(fd, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno != EINTR) return errno;
    if (put > 0) done += static_cast<std::size_t>(put);
  }
  return 0;
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> data) {
  const bool aligned =
      offset % kDirectUnit == 0 && reinterpret_cast<std::uintptr_t>(data.data()) % kDirectUnit == 0;
  std::size_t done = 0;
  int error = 0;
  if (direct_fd_ >= 0 && aligned) {
    const auto pages = data.first(data.size() / kDirectUnit * kDirectUnit);
    error = write_some(direct_fd_, offset, pages, done);
    if (error == EINVAL) error = 0;  // a disk with larger units: the cache takes it
  }
  if (error == 0) error = write_some(fd_, offset, data, done);
  if (error == 0) return Status::ok();
  return os_error(temporary_.string(), "cannot write", error);
}

Status AtomicFile::resize(std::uint64_t size) {
  // Not every file system can reserve; those that cannot say so, and the size alone is set below.
  const bool reserved = size == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(size)) == 0;
  if (const int error = errno; !reserved && (error == ENOSPC || error == EDQUOT)) {
    return os_error(temporary_.string(), "cannot reserve " + std::to_string(size) + " bytes",
                    error);
  }
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
    return os_error(temporary_.string(), "cannot set the size", errno);
  }
  return Status::ok();
}

void AtomicFile::start_writeback(std::uint64_t offset, std::uint64_t size) {
  (void)::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(size),
                          SYNC_FILE_RANGE_WRITE);
}

Status AtomicFile::sync() {
  if (::fsync(fd_) == 0) return Status::ok();
  return os_error(temporary_.string(), "cannot sync", errno);
}

Status AtomicFile::commit() {
  MOE_RETURN_IF_ERROR(sync());
  if (direct_fd_ >= 0) ::close(std::exchange(direct_fd_, -1));
  const int fd = std::exchange(fd_, -1);
  // Closed after the rename: until then a lock on the descriptor says that the name is in use.
  const int rename_error = ::rename(temporary_.c_str(), final_.c_str()) == 0 ? 0 : errno;
  if (rename_error != 0) ::unlink(temporary_.c_str());
  const int close_error = ::close(fd) == 0 ? 0 : errno;
  if (rename_error != 0) return os_error(final_.string(), "cannot rename into place", rename_error);
  if (close_error != 0) return os_error(final_.string(), "cannot close", close_error);
  return sync_directory(final_.parent_path());
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  MOE_ASSIGN_OR_RETURN(File file, File::open(path));
  if (file.size() > max_bytes) {
    return corrupt(Where{.file = file.path()}, "is " + std::to_string(file.size()) +
                                                   " bytes long, at most " +
                                                   std::to_string(max_bytes) + " are expected");
  }
  std::string text(file.size(), '\0');
  MOE_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  MOE_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

Status sync_directory(const std::filesystem::path& directory) {
  const std::string name = directory.empty() ? "." : directory.string();
  const int fd = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return os_error(name, "cannot open directory", errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a directory and say EINVAL; the rename itself stands.
  if (result != 0 && error != EINVAL) return os_error(name, "cannot sync directory", error);
  return Status::ok();
}

Status create_directories(const std::filesystem::path& path,
                          std::vector<std::filesystem::path>& created) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, error);
       at = at.parent_path()) {
    missing.push_back(at);
    if (!at.has_relative_path()) break;
  }
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    MOE_RETURN_IF_ERROR(check_link(*it, "remove the link, or name another place"));
    const bool is_new = std::filesystem::create_directory(*it, error);
    if (error) {
      return make_error(StatusCode::kIo, Where{.file = it->string()},
                        "cannot create the directory: " + error.message(),
                        write_remedy(error.value()));
    }
    if (!is_new) continue;  // "new/..", or somebody else's by now
    created.push_back(*it);
    MOE_RETURN_IF_ERROR(sync_directory(it->parent_path()));
  }
  return Status::ok();
}

std::filesystem::path existing_parent(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  return at;
}

std::optional<std::uint64_t> free_space(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(existing_parent(path), error);
  // File systems that cannot tell answer with zeros, of which the size is one.
  if (error || space.capacity == 0) return std::nullopt;
  return space.available;
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t size_bytes, std::size_t alignment) {
  AlignedBuffer buffer;
  const std::size_t padded = align_up(size_bytes == 0 ? 1 : size_bytes, alignment);
  // Records of experts are many and count to the byte: large pages are for what is far larger.
  void* memory = nullptr;
  if (padded >= kLeastInLargePages) {
    memory = allocate_in_large_pages(padded, alignment);
  } else if (::posix_memalign(&memory, alignment, padded) != 0) {
    memory = nullptr;
  }
  if (memory == nullptr) {
    return make_error(StatusCode::kIo, Where{},
                      "out of memory: " + std::to_string(size_bytes) + " bytes wanted");
  }
  buffer.data_.reset(static_cast<std::byte*>(memory));
  buffer.size_ = size_bytes;
  return buffer;
}

}  // namespace moepack

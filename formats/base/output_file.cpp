#include "formats/base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "formats/base/checksum.h"
#include "formats/base/write_remedy.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".moepack-";
constexpr std::string_view kSuffix = ".tmp";
constexpr std::size_t kHexDigits = 16;
// Bytes of a target's name that go into the temporary one, which file systems limit to 255.
constexpr std::size_t kMaxStem = 200;

Status cannot_create(const fs::path& path, int error) {
  return make_error(error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo,
                    Where{.file = path.string()},
                    std::string("cannot create: ") + std::strerror(error),
                    write_remedy(error, "check that the directory is there and can be written to"));
}

// Where the links at `path` end; what is there need not exist.
Result<fs::path> follow_links(const fs::path& path) {
  constexpr int kMaxLinks = 40;
  fs::path at = path;
  for (int i = 0; i <= kMaxLinks; ++i) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(at, error))) return at;
    const fs::path next = fs::read_symlink(at, error);
    if (error) return cannot_create(at, error.value());
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                    "is a symbolic link that leads in a circle", "remove it or name another file");
}

Status check_target(const fs::path& target) {
  if (target.filename().empty()) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = target.string()},
                      "names no output file", "name a file to write");
  }
  struct stat info {};
  if (::stat(target.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = target.string()},
                    "is not a regular file", "name a file to write, or - for stdout");
}

// The running kernel, as all its processes see it, also those in containers; "" where it does not
// say.
std::string kernel_in_hex() {
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::array<std::byte, 64> id{};
  const ssize_t size = ::read(fd, id.data(), id.size());
  ::close(fd);
  return size <= 0 ? std::string()
                   : checksum_text(checksum(std::span(id).first(static_cast<std::size_t>(size))));
}

// What the temporary names of `target` have in common that runs under this kernel make. `kernel`:
// as above; "" is no kernel's.
std::string temporary_stem(const fs::path& target, const std::string& kernel) {
  return target.filename()
      .string()
      .substr(0, kMaxStem)
      .append(kMark)
      .append((kernel.empty() ? std::string(kHexDigits, '0') : kernel) + "-");
}

Result<std::string> new_temporary_name(const fs::path& target, const std::string& stem) {
  unsigned long long number = 0;
  if (::getentropy(&number, sizeof(number)) != 0) return cannot_create(target, errno);
  std::array<char, kHexDigits + 1> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", number);
  return stem + hex.data() + std::string(kSuffix);
}

bool is_temporary_name(std::string_view name, std::string_view stem) {
  if (name.size() != stem.size() + kHexDigits + kSuffix.size()) return false;
  const std::string_view digits = name.substr(stem.size(), kHexDigits);
  return name.starts_with(stem) && name.ends_with(kSuffix) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether `path` itself, and no link there, is the open file.
bool is_name_of(const fs::path& path, int fd) {
  struct stat own {};
  struct stat named {};
  return ::fstat(fd, &own) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

// A writer holds a lock on its temporary file as long as it lives, so one that can be locked is
// what a killed run left. Without locks on the file system nothing is removed.
void remove_if_abandoned(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (regular && ::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_name_of(path, fd)) {
    ::unlink(path.c_str());
  }
  ::close(fd);
}

void remove_abandoned(const fs::path& directory, const std::string& stem) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (is_temporary_name(at->path().filename().string(), stem)) remove_if_abandoned(at->path());
  }
}

}  // namespace

Result<AtomicFile> create_output_file(const fs::path& target) {
  constexpr int kMaxTries = 100;
  MOE_RETURN_IF_ERROR(check_target(target));
  MOE_ASSIGN_OR_RETURN(const fs::path final_path, follow_links(target));
  const fs::path parent = final_path.parent_path();
  const fs::path directory = parent.empty() ? fs::path(".") : parent;
  const std::string kernel = kernel_in_hex();
  const std::string stem = temporary_stem(final_path, kernel);
  if (!kernel.empty()) remove_abandoned(directory, stem);
  for (int i = 0; i < kMaxTries; ++i) {
    MOE_ASSIGN_OR_RETURN(const std::string name, new_temporary_name(final_path, stem));
    fs::path temporary = parent / name;
    const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return cannot_create(final_path, errno);
    // Another run may have found the file before it was locked, and taken it for abandoned.
    const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (locked && is_name_of(temporary, fd)) {
      return AtomicFile::adopt(fd, std::move(temporary), final_path);
    }
    ::close(fd);
  }
  return cannot_create(final_path, EEXIST);
}

Status write_output_text(const fs::path& target, std::string_view text) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, create_output_file(target));
  MOE_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace moepack

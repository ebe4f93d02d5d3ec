#include "runtime/store/record_file.h"

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"

namespace moepack {
namespace {

// A system call takes less than 2 GiB at once.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

bool is_unit(std::uint64_t number) { return number % kDirectUnit == 0; }

// Ends the job with an error; `sentence` gives it and may find no memory.
template <typename Sentence>
void fail_job(RecordJob& job, const Sentence& sentence) noexcept {
  try {
    job.completion.status = sentence();
  } catch (const std::bad_alloc&) {
    job.completion.status = Status(StatusCode::kIo, "a read failed");
  }
}

Status read_error(const RecordFile& file, std::uint64_t offset, int error) {
  return make_error(StatusCode::kIo, Where{.file = file.file().path(), .offset = offset},
                    std::string("cannot read: ") + std::strerror(error),
                    error == EIO ? "the disk may be failing; copy the file elsewhere"
                                 : "try again; if it stays, copy the file elsewhere");
}

}  // namespace

Result<RecordFile> RecordFile::open(const std::filesystem::path& path, IoMode mode) {
  MOE_ASSIGN_OR_RETURN(File opened, File::open(path));
  Stamp stamp;
  (void)stamp_of(opened.fd(), stamp);
  RecordFile file(std::move(opened), stamp);
  if (mode == IoMode::kDirect) file.direct_ = DirectFile::open(file.file_);
  if (mode == IoMode::kMmap) {
    MOE_ASSIGN_OR_RETURN(file.mapping_, MappedFile::open(file.file_));
  }
  return file;
}

bool RecordFile::stamp_of(int fd, Stamp& stamp) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  stamp = {
      .size = info.st_size, .seconds = info.st_mtim.tv_sec, .nanoseconds = info.st_mtim.tv_nsec};
  return true;
}

bool RecordFile::ends_before(std::uint64_t offset) const {
  Stamp now;
  return !stamp_of(file_.fd(), now) || static_cast<std::uint64_t>(now.size) < offset;
}

bool RecordFile::has_changed() const {
  Stamp now;
  return stamp_of(file_.fd(), now) && !(now == stamp_);
}

Result<std::vector<RecordFile>> open_record_files(const std::vector<std::filesystem::path>& paths,
                                                  IoMode mode) {
  std::vector<RecordFile> files;
  files.reserve(paths.size());
  const auto named =
      std::find_if(paths.begin(), paths.end(), [](const auto& path) { return !path.empty(); });
  if (named == paths.end()) return files;  // nobody asks for one
  for (const std::filesystem::path& path : paths) {
    MOE_ASSIGN_OR_RETURN(RecordFile file, RecordFile::open(path.empty() ? *named : path, mode));
    files.push_back(std::move(file));
  }
  return files;
}

bool begin_job(const RecordFile& file, RecordJob& job) noexcept {
  const RecordRead& read = job.read;
  job.completion.tag = read.tag;
  const auto end = checked_add(read.offset, read.out.size());
  if (!end.has_value() || *end > file.file().size()) {
    fail_job(job, [&] {
      return corrupt(Where{.file = file.file().path(), .offset = read.offset},
                     "file ends at byte " + std::to_string(file.file().size()) + ", " +
                         std::to_string(read.out.size()) + " bytes were wanted here",
                     "it is cut short; copy or convert it again");
    });
    return false;
  }
  job.is_direct = file.is_direct() && is_unit(read.offset) &&
                  is_unit(reinterpret_cast<std::uintptr_t>(read.out.data()));
  if (file.mapping().is_open()) file.mapping().announce(read.offset, read.out.size());
  return true;
}

JobPiece next_piece(const RecordJob& job) noexcept {
  const std::size_t left = job.read.out.size() - job.done;
  const std::size_t size = job.is_direct ? align_up(left, kDirectUnit) : left;
  return {.offset = job.read.offset + job.done,
          .out = {job.read.out.data() + job.done, std::min(size, kMostAtOnce)},
          .is_direct = job.is_direct};
}

long read_piece(const RecordFile& file, const JobPiece& piece) noexcept {
  if (file.mapping().is_open()) return file.mapping().copy(piece.offset, piece.out);
  const ssize_t got = ::pread(file.fd(piece.is_direct), piece.out.data(), piece.out.size(),
                              static_cast<off_t>(piece.offset));
  return got < 0 ? -errno : got;
}

bool take_result(const RecordFile& file, RecordJob& job, long result) noexcept {
  const std::uint64_t offset = job.read.offset + job.done;
  if (result == -EINTR || result == -EAGAIN || result == -ECANCELED) return false;
  if (result == -EINVAL && job.is_direct) {
    job.is_direct = false;
    return false;
  }
  if (result < 0) {
    fail_job(job, [&] { return read_error(file, offset, static_cast<int>(-result)); });
    return true;
  }
  const std::size_t left = job.read.out.size() - job.done;
  job.done += std::min(left, static_cast<std::size_t>(result));
  if (job.done == job.read.out.size()) return true;
  // What is left begins inside a unit of the disk.
  if (!is_unit(job.done)) job.is_direct = false;
  if (result > 0) return false;
  // A mapping tells nothing but that a page cannot be had.
  if (file.mapping().is_open() && !file.ends_before(offset + 1)) {
    fail_job(job, [&] { return read_error(file, offset, EIO); });
    return true;
  }
  fail_job(job, [&] {
    return make_error(StatusCode::kIo, Where{.file = file.file().path(), .offset = offset},
                      "file became shorter while it was read", "copy or convert it again");
  });
  return true;
}

bool settle_job(const RecordFile& file, RecordJob& job) noexcept {
  RecordCompletion& completion = job.completion;
  completion.finished = Clock::now();
  if (!completion.status.is_ok()) return false;
  completion.bytes = job.read.out.size();
  completion.is_changed = file.has_changed();
  return job.read.wants_checksum || completion.is_changed;
}

void hash_job(RecordJob& job) noexcept {
  job.completion.checksum = checksum(job.read.out);
  job.completion.has_checksum = true;
}

}  // namespace moepack

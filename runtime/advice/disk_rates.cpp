#include "runtime/advice/disk_rates.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "runtime/store/direct_file.h"
#include "runtime/store/disk_probe.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// How much longer many reads at once are measured: nearly all of what is predicted rests on them,
// and disks that are shared swing from one half of a second to the next.
constexpr double kLongerProbe = 3;

// A file of random bytes without a name: the system removes it when the program ends, however it
// does.
class TemporaryFile {
 public:
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  Status write(const fs::path& directory, std::uint64_t bytes) {
    std::string path = (directory / ".moepack-disk-probe-XXXXXX").string();
    descriptor_ = ::mkstemp(path.data());
    if (descriptor_ < 0) return failed(directory);
    ::unlink(path.c_str());
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> block(std::size_t{1} << 17);
    const std::size_t block_bytes = block.size() * sizeof(block[0]);
    for (std::uint64_t done = 0; done < bytes; done += block_bytes) {
      for (std::uint64_t& word : block) word = random();
      const ssize_t got = ::write(descriptor_, block.data(), block_bytes);
      if (got >= 0 && static_cast<std::size_t>(got) != block_bytes) errno = ENOSPC;
      if (got < 0 || static_cast<std::size_t>(got) != block_bytes) return failed(directory);
    }
    if (::fsync(descriptor_) != 0) return failed(directory);
    return Status::ok();
  }
  // Under which it can be opened again.
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  static Status failed(const fs::path& directory) {
    return make_error(
        StatusCode::kIo, Where{.file = directory.string()},
        "no file can be written to measure the disk: " + std::generic_category().message(errno),
        "name a directory with a large file, or one that can be written");
  }

  int descriptor_ = -1;
};

void consider(const fs::directory_entry& entry, fs::path& best, std::uint64_t& size) {
  std::error_code error;
  if (!entry.is_regular_file(error) || error) return;
  const std::uintmax_t bytes = entry.file_size(error);
  if (error || bytes < size) return;
  best = entry.path();
  size = bytes;
}

}  // namespace

fs::path largest_file(const fs::path& directory) {
  fs::path best;
  std::uint64_t size = kProbeFileBytes;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    consider(*at, best, size);
    std::error_code below;
    if (!at->is_directory(below) || at->is_symlink(below)) continue;
    for (fs::directory_iterator inner(at->path(), below), last; !below && inner != last;
         inner.increment(below)) {
      consider(*inner, best, size);
    }
  }
  return best;
}

Result<DiskMeasurement> measure_file(const fs::path& file, const DiskRequest& request) {
  DiskMeasurement measured{.rates = {}, .file = file};
  DiskProbe probe{.request_bytes = request.record_bytes,
                  .depth = std::max(1U, request.depth),
                  .milliseconds = kLongerProbe * request.milliseconds};
  MOE_ASSIGN_OR_RETURN(const DiskRate many, measure_disk_rate(file, probe));
  probe.depth = 1;
  probe.milliseconds = request.milliseconds;
  probe.seed = 2;
  MOE_ASSIGN_OR_RETURN(const DiskRate one, measure_disk_rate(file, probe));
  measured.rates = {.one = one.bytes_per_second,
                    .many = std::max(one.bytes_per_second, many.bytes_per_second)};
  measured.is_direct = many.is_direct && one.is_direct;
  measured.cached_share = std::max(many.cached_share, one.cached_share);
  return measured;
}

Result<double> measure_sequential(const fs::path& file, double milliseconds) {
  constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;
  MOE_ASSIGN_OR_RETURN(const File opened, File::open(file));
  const DirectFile direct = DirectFile::open(opened);
  MOE_ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::allocate(kPiece, kDirectUnit));
  const std::uint64_t pieces = std::max<std::uint64_t>(1, opened.size() / kPiece);
  double bytes = 0;
  double seconds = 0;
  for (std::uint64_t i = 0; i < pieces && seconds * 1000 < milliseconds; ++i) {
    const auto size = static_cast<std::size_t>(std::min(kPiece, opened.size() - i * kPiece));
    const Clock::time_point start = Clock::now();
    if (direct.is_open()) {
      const ssize_t got =
          ::pread(direct.fd(), memory.data(), kPiece, static_cast<off_t>(i * kPiece));
      if (got < 0 || static_cast<std::size_t>(got) < size) {
        return make_error(
            StatusCode::kIo, Where{.file = file.string()},
            "cannot be read: " + std::generic_category().message(got < 0 ? errno : EIO),
            "the disk may be failing; copy the file elsewhere");
      }
    } else {
      MOE_RETURN_IF_ERROR(opened.read_at(i * kPiece, memory.span().first(size)));
    }
    seconds += seconds_since(start);
    bytes += static_cast<double>(size);
  }
  return seconds > 0 ? bytes / seconds : 0;
}

Result<DiskMeasurement> measure_directory(const fs::path& directory, const DiskRequest& request,
                                          bool wants_sequential) {
  TemporaryFile temporary;
  fs::path file = largest_file(directory);
  const bool is_temporary = file.empty();
  if (is_temporary) {
    MOE_RETURN_IF_ERROR(temporary.write(directory, kProbeFileBytes));
    file = temporary.path();
  }
  MOE_ASSIGN_OR_RETURN(DiskMeasurement measured, measure_file(file, request));
  if (wants_sequential) {
    MOE_ASSIGN_OR_RETURN(measured.sequential, measure_sequential(file, request.milliseconds));
  }
  measured.is_temporary = is_temporary;
  if (is_temporary) measured.file = directory;
  return measured;
}

}  // namespace moepack

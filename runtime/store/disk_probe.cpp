#include "runtime/store/disk_probe.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "runtime/store/direct_file.h"

namespace moepack {
namespace {

// What the threads of one measurement share.
struct ProbeRun {
  const DiskProbe& probe;
  const File& file;
  int fd = -1;  // the one that is read
  bool is_direct = false;
  std::uint64_t request = 0;
  Clock::time_point end = {};

  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> cached{0};
  std::atomic<int> error{0};

  void read_until_end(std::uint32_t thread);
  bool read_one(std::uint64_t offset, std::span<std::byte> memory);
};

// False after an error, or when the file has become shorter.
bool ProbeRun::read_one(std::uint64_t offset, std::span<std::byte> memory) {
  const auto at = static_cast<off_t>(offset);
  if (!is_direct) {
    (void)::posix_fadvise(fd, at, static_cast<off_t>(request), POSIX_FADV_DONTNEED);
    if (is_cached(fd, offset)) ++cached;
  }
  const ssize_t got = ::pread(fd, memory.data(), request, at);
  if (got <= 0) {
    if (got < 0 && errno == EINTR) return true;
    error = got < 0 ? errno : EIO;
    return false;
  }
  bytes += static_cast<std::uint64_t>(got);
  ++reads;
  return true;
}

void ProbeRun::read_until_end(std::uint32_t thread) {
  Result<AlignedBuffer> memory = AlignedBuffer::allocate(request, kDirectUnit);
  if (!memory.is_ok()) {
    error = ENOMEM;
    return;
  }
  std::mt19937_64 random(probe.seed * 1000003 + thread);
  const std::uint64_t places = (file.size() - std::min(file.size(), request)) / kDirectUnit + 1;
  do {
    if (!read_one(random() % places * kDirectUnit, memory.value().span())) return;
  } while (Clock::now() < end && error == 0);
}

Status run_threads(ProbeRun& run) {
  std::vector<std::thread> threads;
  Status status;
  try {
    for (std::uint32_t i = 0; i < std::max(1U, run.probe.depth); ++i) {
      threads.emplace_back([&run, i] { run.read_until_end(i); });
    }
  } catch (const std::system_error& failure) {
    run.error = EAGAIN;
    status =
        make_error(StatusCode::kIo, Where{},
                   std::string("cannot start threads that measure the disk: ") + failure.what(),
                   "raise the limit of threads (ulimit -u) or end other programs");
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace

Result<DiskRate> measure_disk_rate(const std::filesystem::path& path, const DiskProbe& probe) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
  if (file.size() == 0) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = file.path()},
                      "is empty, so no disk can be measured with it", "copy or convert it again");
  }
  const DirectFile direct = probe.direct ? DirectFile::open(file) : DirectFile();
  ProbeRun run{.probe = probe, .file = file};
  run.is_direct = direct.is_open();
  run.fd = run.is_direct ? direct.fd() : file.fd();
  run.request = align_up(std::max<std::uint64_t>(1, probe.request_bytes), kDirectUnit);
  run.request = std::min(run.request, align_up(file.size(), kDirectUnit));
  const Clock::time_point start = Clock::now();
  run.end = start + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double, std::milli>(probe.milliseconds));
  MOE_RETURN_IF_ERROR(run_threads(run));
  const double seconds = seconds_since(start);
  if (run.error != 0) {
    return make_error(
        StatusCode::kIo, Where{.file = file.path()},
        std::string("cannot be read to measure its disk: ") + std::strerror(run.error),
        run.error == ENOMEM ? "end other programs" : "the disk may be failing; copy the file");
  }
  return DiskRate{
      .bytes_per_second = static_cast<double>(run.bytes) / seconds,
      .bytes = run.bytes,
      .seconds = seconds,
      .is_direct = run.is_direct,
      .cached_share = static_cast<double>(run.cached) / static_cast<double>(run.reads.load())};
}

}  // namespace moepack

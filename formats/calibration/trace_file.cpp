#include "formats/calibration/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace moepack {
namespace {

// A block is written when it is this long, or at the end of a pass this long after the last one.
constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
constexpr double kBlockSeconds = 1;

Status cannot_write(const std::filesystem::path& path, int error) {
  return make_error(StatusCode::kIo, Where{.file = path.string()},
                    "cannot write: " + std::generic_category().message(error),
                    "name another file with --trace, or leave it out");
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::filesystem::path& path,
                                                         const TraceModel& model) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) return cannot_write(path, errno);
  std::unique_ptr<TraceWriter> writer(new TraceWriter(fd, path));
  struct stat status {};
  if (::fstat(fd, &status) != 0) return cannot_write(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return invalid_argument("--trace " + path.string() + " is no regular file",
                            "name another file");
  }
  if (::ftruncate(fd, 0) != 0) return cannot_write(path, errno);
  MOE_RETURN_IF_ERROR(writer->write(trace_head(model)));
  return writer;
}

TraceWriter::~TraceWriter() {
  (void)flush();
  (void)::close(fd_);
}

Status TraceWriter::write(std::span<const std::byte> bytes) {
  std::uint64_t at = size_;  // what is cut off is written over
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return cannot_write(path_, count < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  size_ = at;
  return Status::ok();
}

Status TraceWriter::add(const TracePass& pass) {
  block_.add(pass);
  const bool is_due =
      block_.payload_bytes() >= kBlockBytes || seconds_since(written_) >= kBlockSeconds;
  return is_due ? flush() : Status::ok();
}

Status TraceWriter::flush() {
  if (block_.payload_bytes() == 0) return Status::ok();
  written_ = Clock::now();
  return write(block_.take());
}

Result<TraceReader> TraceReader::open(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(File file, File::open(path));
  std::vector<std::byte> head(std::min<std::uint64_t>(kTracePrologueBytes, file.size()));
  MOE_RETURN_IF_ERROR(file.read_at(0, head));
  MOE_ASSIGN_OR_RETURN(const std::size_t bytes, trace_head_bytes(head, file.path()));
  head.resize(std::min<std::uint64_t>(bytes, file.size()));
  MOE_RETURN_IF_ERROR(file.read_at(0, head));
  MOE_ASSIGN_OR_RETURN(TraceModel model, parse_trace_head(head, file.path()));
  return TraceReader(std::move(file), std::move(model), bytes);
}

// False at the end of what can be read.
Result<bool> TraceReader::read_block() {
  const std::uint64_t left = file_.size() - offset_;
  cut_bytes_ = left;
  if (left < kTraceBlockHeadBytes) return false;
  std::vector<std::byte> bytes(kTraceBlockHeadBytes);
  MOE_RETURN_IF_ERROR(file_.read_at(offset_, bytes));
  MOE_ASSIGN_OR_RETURN(const TraceBlockHead head,
                       parse_trace_block_head(bytes, file_.path(), offset_));
  if (left - kTraceBlockHeadBytes < head.payload_bytes) return false;
  bytes.resize(head.payload_bytes);
  MOE_RETURN_IF_ERROR(file_.read_at(offset_ + kTraceBlockHeadBytes, bytes));
  passes_.clear();
  given_ = 0;
  MOE_RETURN_IF_ERROR(parse_trace_payload(head, bytes, model_, file_.path(), offset_, passes_));
  offset_ += kTraceBlockHeadBytes + head.payload_bytes;
  cut_bytes_ = 0;
  return true;
}

Result<const TracePass*> TraceReader::next() {
  if (given_ == passes_.size()) {
    MOE_ASSIGN_OR_RETURN(const bool has_more, read_block());
    if (!has_more) return static_cast<const TracePass*>(nullptr);
  }
  return static_cast<const TracePass*>(&passes_[given_++]);
}

}  // namespace moepack

#include "runtime/corpus/calibration_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

bool is_numbered(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size()) return false;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return false;
  name = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_own_file(std::string name) {
  if (name.ends_with(".tmp")) name.resize(name.size() - 4);
  return name == kCalibrationStateName || name == kCalibrationManifestName ||
         is_numbered(name, "layer_", ".bin.zst") || is_numbered(name, "residual_", ".f32");
}

Result<std::vector<fs::path>> own_files(const fs::path& path, std::string& foreign) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const bool directory = at->symlink_status(ignored).type() == fs::file_type::directory;
    if (!directory && is_own_file(at->path().filename().string())) {
      files.push_back(at->path());
    } else {
      foreign = at->path().string();
    }
  }
  if (!error) return files;
  return make_error(StatusCode::kIo, Where{.file = path.string()},
                    "cannot list the directory: " + error.message());
}

Status remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (!error) return Status::ok();
  return make_error(StatusCode::kIo, Where{.file = file.string()},
                    "cannot remove it: " + error.message());
}

enum class Found { kFree, kUnfinished };

Result<Found> inspect(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return Found::kFree;
  const std::string name = path.string();
  if (status.type() != fs::file_type::directory) {
    return make_error(
        StatusCode::kInvalidArgument, Where{.file = name},
        error ? "cannot be looked at: " + error.message() : "exists and is not a directory");
  }
  std::string foreign;
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> files, own_files(path, foreign));
  const bool unfinished = fs::exists(path / kCalibrationStateName, error);
  if (foreign.empty() && unfinished) return Found::kUnfinished;
  // A run that was killed before its first record leaves this at most.
  const auto is_trace = [](const fs::path& file) {
    return file.filename() == std::string(kCalibrationStateName) + ".tmp";
  };
  if (foreign.empty() && std::all_of(files.begin(), files.end(), is_trace)) return Found::kFree;
  const bool finished = fs::exists(path / kCalibrationManifestName, error);
  std::string what = finished ? "already holds a calibration" : "is not empty";
  if (unfinished) what = "holds an unfinished calibration and also " + printable(foreign);
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, what,
                    "name another output directory or remove this one");
}

// The state that may be continued; without layers where there is none.
Result<CalibrationState> find_state(const fs::path& path, const CalibrationState& wanted,
                                    bool restart) {
  MOE_ASSIGN_OR_RETURN(const Found found, inspect(path));
  if (found == Found::kFree || restart) return wanted;
  MOE_ASSIGN_OR_RETURN(CalibrationState state, read_calibration_state(path));
  if (state.plan == wanted.plan) return state;
  return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                    "holds an unfinished calibration of something else (" + printable(state.what) +
                        ", not " + printable(wanted.what) + ")",
                    "give --restart to drop it, or name another output directory");
}

Status check_sum(const File& file, std::uint64_t size, std::uint64_t expected,
                 const std::function<void(std::uint64_t, std::span<const std::byte>)>& take) {
  const Status damaged = corrupt(Where{.file = file.path()}, "is not what was written there",
                                 "give --restart to begin anew");
  if (file.size() != size) return damaged;
  ChecksumStream sum;
  std::vector<std::byte> buffer;
  MOE_RETURN_IF_ERROR(for_each_block(file, 0, size, buffer,
                                     [&](std::uint64_t at, std::span<const std::byte> block) {
                                       sum.add(block);
                                       if (take) take(at, block);
                                       return Status::ok();
                                     }));
  return sum.finish() == expected ? Status::ok() : damaged;
}

Result<std::uint64_t> write_residual(const fs::path& path, std::span<const float> hidden) {
  MOE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const std::span<const std::byte> bytes = std::as_bytes(hidden);
  ChecksumStream sum;
  for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const auto block = bytes.subspan(at, std::min(kBlockBytes, bytes.size() - at));
    MOE_RETURN_IF_ERROR(file.write_at(at, block));
    file.start_writeback(at, block.size());
    sum.add(block);
  }
  MOE_RETURN_IF_ERROR(file.commit());
  return sum.finish();
}

}  // namespace

Result<std::size_t> CalibrationOutput::check(const fs::path& path, const CalibrationState& wanted,
                                             bool restart) {
  MOE_ASSIGN_OR_RETURN(const CalibrationState state, find_state(path, wanted, restart));
  return state.layers.size();
}

Status CalibrationOutput::lock() {
  lock_fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_fd_ < 0) {
    return make_error(StatusCode::kIo, Where{.file = path_.string()},
                      std::string("cannot open the directory: ") + std::strerror(errno));
  }
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return Status::ok();
  ::close(std::exchange(lock_fd_, -1));
  return make_error(StatusCode::kInvalidArgument, Where{.file = path_.string()},
                    "another calibration is writing there");
}

Status CalibrationOutput::check_layers() const {
  for (const CalibrationLayer& layer : state_.layers) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(path_ / layer.file));
    MOE_RETURN_IF_ERROR(check_sum(file, layer.file_size, layer.checksum, {}));
  }
  return Status::ok();
}

Result<CalibrationOutput> CalibrationOutput::take(const fs::path& path,
                                                  const CalibrationState& wanted, bool restart) {
  fs::path clean = path.lexically_normal();
  if (clean.filename().empty()) clean = clean.parent_path();
  if (clean.empty()) return invalid_argument("no output directory was named");
  MOE_RETURN_IF_ERROR(find_state(clean, wanted, restart).status());
  CalibrationOutput output(std::move(clean));
  MOE_RETURN_IF_ERROR(create_directories(output.path_, output.created_));
  MOE_RETURN_IF_ERROR(output.lock());
  // Again under the lock: another run may have come in between.
  MOE_ASSIGN_OR_RETURN(output.state_, find_state(output.path_, wanted, restart));
  MOE_RETURN_IF_ERROR(output.check_layers());
  output.layers_found_ = output.state_.layers.size();
  output.active_ = true;
  if (output.layers_found_ == 0) {
    output.remove_all();
    MOE_RETURN_IF_ERROR(write_calibration_state(output.path_, output.state_));
  }
  return output;
}

CalibrationOutput::CalibrationOutput(CalibrationOutput&& other) noexcept
    : path_(std::move(other.path_)),
      created_(std::move(other.created_)),
      state_(std::move(other.state_)),
      layers_found_(other.layers_found_),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      active_(std::exchange(other.active_, false)),
      discard_(other.discard_) {
  other.created_.clear();
}

// Best effort; the state goes last.
void CalibrationOutput::remove_all() const {
  std::string foreign;
  const auto files = own_files(path_, foreign);
  if (!files.is_ok()) return;
  for (const fs::path& file : files.value()) {
    if (file.filename() != kCalibrationStateName) (void)remove_file(file);
  }
  (void)remove_file(path_ / kCalibrationStateName);
}

CalibrationOutput::~CalibrationOutput() {
  const bool keep = layers_found_ > 0 || (!discard_ && !state_.layers.empty());
  if (active_ && !keep) remove_all();
  if (lock_fd_ >= 0) ::close(lock_fd_);
  if (active_ && keep) return;
  // Only empty directories go.
  std::error_code ignored;
  for (auto it = created_.rbegin(); it != created_.rend(); ++it) fs::remove(*it, ignored);
}

Status CalibrationOutput::read_residual(std::span<float> hidden) const {
  MOE_ASSIGN_OR_RETURN(const File file,
                       File::open(path_ / residual_file_name(state_.layers.size())));
  const std::span<std::byte> bytes = std::as_writable_bytes(hidden);
  return check_sum(file, bytes.size(), state_.residual_checksum,
                   [&](std::uint64_t at, std::span<const std::byte> block) {
                     std::memcpy(bytes.data() + at, block.data(), block.size());
                   });
}

Status CalibrationOutput::add_layer(CalibrationLayer layer, std::span<const float> hidden) {
  CalibrationState next = state_;
  next.layers.push_back(std::move(layer));
  next.residual_checksum = 0;
  if (!hidden.empty()) {
    MOE_ASSIGN_OR_RETURN(next.residual_checksum,
                         write_residual(path_ / residual_file_name(next.layers.size()), hidden));
  }
  MOE_RETURN_IF_ERROR(write_calibration_state(path_, next));
  const fs::path old = path_ / residual_file_name(state_.layers.size());
  state_ = std::move(next);
  return remove_file(old);
}

Status CalibrationOutput::finish(const CalibrationManifest& manifest) {
  MOE_RETURN_IF_ERROR(
      write_text_file(path_ / kCalibrationManifestName, calibration_manifest_text(manifest)));
  std::string foreign;
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> files, own_files(path_, foreign));
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (name.ends_with(".tmp") || name.starts_with("residual_")) {
      MOE_RETURN_IF_ERROR(remove_file(file));
    }
  }
  MOE_RETURN_IF_ERROR(remove_file(path_ / kCalibrationStateName));
  active_ = false;
  created_.clear();
  return sync_directory(path_);
}

}  // namespace moepack

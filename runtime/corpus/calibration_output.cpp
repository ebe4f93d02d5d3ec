#include "runtime/corpus/calibration_output.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/base/paths.h"
#include "formats/unfinished_work.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

bool is_calibration_file(std::string_view /*directory*/, std::string_view name) {
  return name == kCalibrationManifestName || is_numbered_name(name, "layer_", ".bin.zst") ||
         is_numbered_name(name, "residual_", ".f32");
}

constexpr WorkRules kCalibrationRules{.marker = kCalibrationStateName,
                                      .is_own_file = is_calibration_file};

enum class CalibrationPlace { kFree, kUnfinished };

Result<CalibrationPlace> look_at_calibration(const fs::path& path) {
  MOE_ASSIGN_OR_RETURN(const bool there, is_directory_there(path));
  if (!there) return CalibrationPlace::kFree;
  MOE_RETURN_IF_ERROR(check_no_other_work(path, WorkKind::kCalibration));
  const std::string name = path.string();
  MOE_ASSIGN_OR_RETURN(const WorkFiles files, list_work_files(path, kCalibrationRules));
  const bool unfinished = is_there(path / kCalibrationStateName);
  if (files.foreign.empty() && unfinished) return CalibrationPlace::kUnfinished;
  // A run that was killed before its first record leaves this at most.
  const auto is_trace = [](const fs::path& file) {
    return file.filename() == std::string(kCalibrationStateName) + ".tmp";
  };
  if (files.foreign.empty() && std::all_of(files.own.begin(), files.own.end(), is_trace)) {
    return CalibrationPlace::kFree;
  }
  const bool finished = is_there(path / kCalibrationManifestName);
  std::string what = finished ? "already holds a calibration" : "is not empty";
  if (unfinished) what = "holds an unfinished calibration and also " + printable(files.foreign);
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, what,
                    "name another output directory or remove this one");
}

// The state that may be continued; without layers where there is none.
Result<CalibrationState> find_state(const fs::path& path, const CalibrationState& wanted,
                                    bool restart) {
  MOE_ASSIGN_OR_RETURN(const CalibrationPlace place, look_at_calibration(path));
  if (place == CalibrationPlace::kFree || restart) return wanted;
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

Status CalibrationOutput::check_layers() const {
  for (const CalibrationLayer& layer : state_.layers) {
    if (!layer.has_experts()) continue;
    MOE_ASSIGN_OR_RETURN(const File file, File::open(path() / layer.file));
    MOE_RETURN_IF_ERROR(check_sum(file, layer.file_size, layer.checksum, {}));
  }
  return Status::ok();
}

Result<CalibrationOutput> CalibrationOutput::take(const fs::path& path,
                                                  const CalibrationState& wanted, bool restart) {
  const fs::path clean = without_trailing_slash(path);
  MOE_RETURN_IF_ERROR(find_state(clean, wanted, restart).status());
  MOE_ASSIGN_OR_RETURN(WorkDirectory directory, WorkDirectory::create(clean, kCalibrationRules));
  MOE_RETURN_IF_ERROR(directory.lock("another calibration is writing there"));
  CalibrationOutput output(std::move(directory));
  // Again under the lock: another run may have come in between.
  MOE_ASSIGN_OR_RETURN(output.state_, find_state(clean, wanted, restart));
  MOE_RETURN_IF_ERROR(output.check_layers());
  output.layers_found_ = output.state_.layers.size();
  output.active_ = true;
  if (output.layers_found_ == 0) {
    output.remove_all();
    MOE_RETURN_IF_ERROR(write_calibration_state(clean, output.state_));
  }
  return output;
}

CalibrationOutput::CalibrationOutput(CalibrationOutput&& other) noexcept
    : directory_(std::move(other.directory_)),
      state_(std::move(other.state_)),
      layers_found_(other.layers_found_),
      active_(std::exchange(other.active_, false)),
      discard_(other.discard_) {}

// Best effort; the state goes last.
void CalibrationOutput::remove_all() const {
  (void)directory_.remove_files();
  (void)directory_.remove_marker();
}

CalibrationOutput::~CalibrationOutput() {
  if (!active_) return;
  const bool keep = layers_found_ > 0 || (!discard_ && !state_.layers.empty());
  if (keep) {
    directory_.release();
  } else {
    remove_all();
  }
}

Status CalibrationOutput::read_residual(std::span<float> hidden) const {
  MOE_ASSIGN_OR_RETURN(const File file,
                       File::open(path() / residual_file_name(state_.layers.size())));
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
                         write_residual(path() / residual_file_name(next.layers.size()), hidden));
  }
  MOE_RETURN_IF_ERROR(write_calibration_state(path(), next));
  const fs::path old = path() / residual_file_name(state_.layers.size());
  state_ = std::move(next);
  return remove_path(old);
}

Status CalibrationOutput::finish(const CalibrationManifest& manifest) {
  MOE_RETURN_IF_ERROR(
      write_text_file(path() / kCalibrationManifestName, calibration_manifest_text(manifest)));
  MOE_ASSIGN_OR_RETURN(const WorkFiles files, directory_.files());
  for (const fs::path& file : files.own) {
    const std::string name = file.filename().string();
    if (is_temporary_name(name) || name.starts_with("residual_")) {
      MOE_RETURN_IF_ERROR(remove_path(file));
    }
  }
  MOE_RETURN_IF_ERROR(directory_.remove_marker());
  active_ = false;
  directory_.release();
  return sync_directory(path());
}

}  // namespace moepack

#include "convert/overlay/overlay_files.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "convert/pack/resident.h"
#include "formats/base/file.h"
#include "formats/base/file_blocks.h"
#include "formats/base/write_remedy.h"
#include "formats/unfinished_work.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOverlayUnfinished = "moepack.unfinished";

// What is not whole is told by the directory it stands in, and not by its name.
bool is_overlay_work_file(std::string_view /*directory*/, std::string_view /*name*/) {
  return false;
}

constexpr WorkRules kOverlayRules{.marker = kOverlayUnfinished,
                                  .is_own_file = is_overlay_work_file};

Status io_error(const fs::path& path, const std::error_code& error) {
  return make_error(StatusCode::kIo, Where{.file = path.string()}, error.message(),
                    write_remedy(error.value(), "run the same command again when that is mended"));
}

Status rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return error ? io_error(to, error) : sync_directory(to.parent_path());
}

Status remove_overlay_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  return error ? io_error(path, error) : Status::ok();
}

// What `other` says but for the checksum.
bool same_contents(const ResidentOverlay& planned, ResidentOverlay other) {
  other.checksum = planned.checksum;
  return other.has_checksum && resident_overlay_text(planned) == resident_overlay_text(other);
}

// As they lie in the file: a row for each row of the source.
std::vector<ResidentTensor> stored_tensors(const PlannedOverlay& planned) {
  std::vector<ResidentTensor> tensors;
  for (std::size_t i = 0; i < planned.sources.size(); ++i) {
    ResidentTensor tensor = planned.overlay.tensors[i].tensor;
    tensor.rows = planned.sources[i].rows;
    tensor.cols = planned.sources[i].cols;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Status write_one(PlannedOverlay& planned, const fs::path& directory, std::size_t threads,
                 ProgressCounter& progress) {
  ResidentOverlay& overlay = planned.overlay;
  MOE_ASSIGN_OR_RETURN(overlay.checksum,
                       write_matrices(planned.sources, stored_tensors(planned), overlay.data_size,
                                      directory / overlay.data_name(), threads, progress));
  return write_text_file(directory / overlay.manifest_name(), resident_overlay_text(overlay));
}

// The stems of the files in `directory`.
Result<std::set<std::string>> stems_in(const fs::path& directory) {
  std::set<std::string> stems;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    stems.insert(at->path().stem().string());
  }
  if (error) return io_error(directory, error);
  return stems;
}

// Removes from `directory` all files of the groups that `stems` belong to.
Status remove_groups(const fs::path& directory, const std::set<std::string>& stems) {
  for (OverlayGroup group : kOverlayGroups) {
    const std::vector<std::string> of_group = overlay_stems(group);
    const bool any = std::any_of(of_group.begin(), of_group.end(),
                                 [&](const std::string& stem) { return stems.contains(stem); });
    if (!any) continue;
    for (const std::string& stem : of_group) {
      MOE_RETURN_IF_ERROR(remove_overlay_file(directory / (stem + ".json")));
      MOE_RETURN_IF_ERROR(remove_overlay_file(directory / (stem + ".bin")));
    }
  }
  return sync_directory(directory);
}

// Data first, so that no manifest stands over other data.
Status move_up(const fs::path& from, const fs::path& to) {
  MOE_ASSIGN_OR_RETURN(const std::set<std::string> stems, stems_in(from));
  for (const char* extension : {".bin", ".json"}) {
    for (const std::string& stem : stems) {
      const std::string name = stem + extension;
      std::error_code error;
      if (!fs::exists(from / name, error)) continue;
      fs::rename(from / name, to / name, error);
      if (error) return io_error(to / name, error);
    }
  }
  MOE_RETURN_IF_ERROR(sync_directory(to));
  std::error_code error;
  fs::remove(from, error);
  return error ? io_error(from, error) : Status::ok();
}

}  // namespace

Result<bool> is_overlay_there(const OverlaidModel& model, bool replace, PlannedOverlay& planned) {
  const fs::path directory = model.path / kOverlayDirectory;
  ResidentOverlay& overlay = planned.overlay;
  bool there = false;
  for (const std::string& stem : overlay_stems(overlay.group)) {
    std::error_code ignored;
    const fs::path data = directory / (stem + ".bin");
    if (replace ||
        (!fs::exists(data, ignored) && !fs::exists(directory / (stem + ".json"), ignored))) {
      continue;
    }
    const auto found = read_resident_overlay(model.path, stem, model.config);
    if (stem == overlay.stem && found.is_ok() && same_contents(overlay, found.value())) {
      MOE_ASSIGN_OR_RETURN(overlay.checksum, checksum_of_file(data));
      there = overlay.checksum == found.value().checksum;  // else damaged: written again
      continue;
    }
    const bool of_same_source = found.is_ok() && found.value().has_checksum &&
                                found.value().source.fingerprint == overlay.source.fingerprint;
    if (stem != overlay.stem && of_same_source) continue;
    const std::string file = data.string();
    return make_error(
        StatusCode::kInvalidArgument, Where{.file = file},
        found.is_ok() ? "is there already, with other contents"
                      : "is there already and cannot be read (" + found.status().message() + ")",
        "give --replace to put the new one in its place");
  }
  return there;
}

Result<OverlayDirectory> OverlayDirectory::take(const fs::path& model) {
  MOE_RETURN_IF_ERROR(check_no_other_work(model / kOverlayDirectory, WorkKind::kOverlay));
  MOE_ASSIGN_OR_RETURN(WorkDirectory created,
                       WorkDirectory::create(model / kOverlayDirectory, kOverlayRules));
  MOE_RETURN_IF_ERROR(created.lock("another command is writing there"));
  OverlayDirectory directory(std::move(created));
  MOE_RETURN_IF_ERROR(directory.publish());
  std::error_code ignored;
  fs::remove_all(directory.path() / kOverlayUnfinished, ignored);  // of a run that was killed
  return directory;
}

OverlayDirectory::~OverlayDirectory() {
  if (!directory_.is_locked()) return;
  std::error_code ignored;
  fs::remove_all(path() / kOverlayUnfinished, ignored);
}

// From wherever it stopped; nothing where there is nothing to put in place.
Status OverlayDirectory::publish() {
  std::error_code ignored;
  if (fs::exists(path() / kOverlayComplete, ignored)) {
    MOE_ASSIGN_OR_RETURN(const std::set<std::string> stems, stems_in(path() / kOverlayComplete));
    MOE_RETURN_IF_ERROR(remove_groups(path(), stems));
    MOE_RETURN_IF_ERROR(rename_path(path() / kOverlayComplete, path() / kOverlayMoving));
  }
  if (!fs::exists(path() / kOverlayMoving, ignored)) return Status::ok();
  return move_up(path() / kOverlayMoving, path());
}

Status OverlayDirectory::write(std::span<PlannedOverlay*> planned, std::size_t threads,
                               ProgressCounter& progress) {
  if (planned.empty()) return Status::ok();
  const fs::path unfinished = path() / kOverlayUnfinished;
  std::error_code error;
  fs::create_directory(unfinished, error);
  if (error) return io_error(unfinished, error);
  for (PlannedOverlay* file : planned) {
    MOE_RETURN_IF_ERROR(write_one(*file, unfinished, threads, progress));
  }
  MOE_RETURN_IF_ERROR(rename_path(unfinished, path() / kOverlayComplete));
  return publish();
}

}  // namespace moepack

#include "convert/overlay_files.h"

#include <set>
#include <system_error>

#include "convert/resident.h"
#include "formats/file.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStagingName = "moepack.unfinished";

// Files are written here and moved up when all are complete. Removed with the object.
class Staging {
 public:
  static Result<Staging> create(const fs::path& overlays) {
    Staging staging;
    MOE_RETURN_IF_ERROR(create_directories(overlays, staging.created_));
    staging.path_ = overlays / kStagingName;
    std::error_code error;
    fs::create_directory(staging.path_, error);
    if (!error) return staging;
    return make_error(StatusCode::kIo, Where{.file = staging.path_.string()}, error.message());
  }
  Staging(Staging&&) = default;
  Staging& operator=(Staging&&) = delete;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
    // Only while they are empty.
    for (auto it = created_.rbegin(); it != created_.rend(); ++it) fs::remove(*it, ignored);
  }

  const fs::path& path() const { return path_; }

 private:
  Staging() = default;
  fs::path path_;
  std::vector<fs::path> created_;
};

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

Status remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (!error) return Status::ok();
  return make_error(StatusCode::kIo, Where{.file = path.string()}, error.message());
}

// Renames files; until keep() the destructor takes back those that replaced nothing.
class Publication {
 public:
  Publication() = default;
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  ~Publication() {
    std::error_code ignored;
    for (const fs::path& path : added_) fs::remove(path, ignored);
  }

  Status move(const fs::path& from, const fs::path& to) {
    std::error_code error;
    if (!fs::exists(to, error)) added_.push_back(to);
    fs::rename(from, to, error);
    if (!error) return Status::ok();
    return make_error(StatusCode::kIo, Where{.file = to.string()}, error.message());
  }
  void keep() { added_.clear(); }

 private:
  std::vector<fs::path> added_;
};

// The manifest first: with it alone, or with older data, nobody takes the file for whole.
Status publish(std::span<PlannedOverlay*> planned, const fs::path& staging,
               const fs::path& directory) {
  Publication publication;
  std::set<std::string> stems;
  for (const PlannedOverlay* file : planned) {
    stems.insert(file->overlay.stem);
    for (const std::string& name : {file->overlay.manifest_name(), file->overlay.data_name()}) {
      MOE_RETURN_IF_ERROR(publication.move(staging / name, directory / name));
    }
  }
  for (const PlannedOverlay* file : planned) {
    for (const std::string& stem : overlay_stems(file->overlay.group)) {
      if (stems.contains(stem)) continue;
      MOE_RETURN_IF_ERROR(remove_file(directory / (stem + ".bin")));
      MOE_RETURN_IF_ERROR(remove_file(directory / (stem + ".json")));
    }
  }
  MOE_RETURN_IF_ERROR(sync_directory(directory));
  publication.keep();
  return Status::ok();
}

}  // namespace

Result<bool> is_overlay_there(const OverlaidModel& model, bool replace, PlannedOverlay& planned) {
  const fs::path directory = model.path / kOverlayDirectory;
  ResidentOverlay& overlay = planned.overlay;
  bool same = false;
  for (const std::string& stem : overlay_stems(overlay.group)) {
    std::error_code ignored;
    // A manifest alone is what a run left that was killed while it put its files in place.
    if (!fs::exists(directory / (stem + ".bin"), ignored)) continue;
    const auto found = read_resident_overlay(model.path, stem, model.config);
    if (stem == overlay.stem && found.is_ok() && same_contents(overlay, found.value())) {
      overlay.checksum = found.value().checksum;
      same = true;
      continue;
    }
    const bool of_same_source = found.is_ok() && found.value().has_checksum &&
                                found.value().source.fingerprint == overlay.source.fingerprint;
    if (replace || (stem != overlay.stem && of_same_source)) continue;
    const std::string file = (directory / (stem + ".bin")).string();
    return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                      "is there already, with other contents",
                      "give --replace to put the new one in its place");
  }
  return same;
}

Status write_overlay_files(const fs::path& model, std::span<PlannedOverlay*> planned,
                           std::size_t threads, ProgressCounter& progress) {
  const fs::path directory = model / kOverlayDirectory;
  std::error_code ignored;
  fs::remove_all(directory / kStagingName, ignored);  // of a run that was killed
  if (planned.empty()) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const Staging staging, Staging::create(directory));
  for (PlannedOverlay* file : planned) {
    MOE_RETURN_IF_ERROR(write_one(*file, staging.path(), threads, progress));
  }
  return publish(planned, staging.path(), directory);
}

}  // namespace moepack

#include "convert/job/export_directory.h"

#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/base/write_remedy.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/engine_files.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"
#include "formats/unfinished_work.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

bool is_export_directory(std::string_view name) {
  return name == kDefaultPackName || name == kTwoBitPackName;
}

bool is_export_file(std::string_view directory, std::string_view name) {
  if (!directory.empty()) {
    return name == kPackManifestName || is_numbered_name(name, "layer_", ".bin");
  }
  return name == kResidentManifestName || name == kResidentDataName ||
         is_numbered_name(name, "model_weights_", ".bin") || name == kFlashMoeTokenizerName ||
         name == kFlashMoeVocabName || is_companion(name);
}

constexpr WorkRules kExportRules{.marker = kUnfinishedMarker,
                                 .is_own_file = is_export_file,
                                 .is_own_directory = is_export_directory};

// True: an interrupted export is there. One that was killed before it wrote into the marker leaves
// that alone.
Result<bool> look_at_export(const fs::path& path) {
  MOE_ASSIGN_OR_RETURN(const bool there, is_directory_there(path));
  if (!there) return false;
  MOE_RETURN_IF_ERROR(check_no_other_work(path, WorkKind::kExport));
  MOE_ASSIGN_OR_RETURN(const WorkFiles files, list_work_files(path, kExportRules));
  if (files.own.empty() && files.foreign.empty()) return false;
  const WorkKind found = find_unfinished_work(path);
  if (found == WorkKind::kUnknown && files.own.size() > 1) {
    return unfinished_work_error(path, StatusCode::kInvalidArgument);
  }
  if (found != WorkKind::kNone && files.foreign.empty()) return true;
  const std::string name = path.string();
  if (found == WorkKind::kNone) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = name}, "is not empty",
                      "remove the directory or name another one");
  }
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    "holds an interrupted export and also " + printable(files.foreign),
                    "move that file away, or name another output directory");
}

Status write_marker(int fd, const std::string& path) {
  const auto size = static_cast<ssize_t>(kExportMarkerText.size());
  const ssize_t put = ::pwrite(fd, kExportMarkerText.data(), kExportMarkerText.size(), 0);
  if (put == size) return Status::ok();
  // A part alone is written where the disk is full after it.
  const int error = put < 0 ? errno : ENOSPC;
  return make_error(StatusCode::kIo, Where{.file = path},
                    std::string("cannot write: ") + std::strerror(error), write_remedy(error));
}

}  // namespace

Result<ExportDirectory> ExportDirectory::take(const fs::path& path) {
  const fs::path clean = without_trailing_slash(path);
  MOE_ASSIGN_OR_RETURN(const bool interrupted, look_at_export(clean));
  MOE_ASSIGN_OR_RETURN(WorkDirectory created, WorkDirectory::create(clean, kExportRules));
  MOE_RETURN_IF_ERROR(created.lock_marker(interrupted, "another command is writing there"));
  // What was interrupted may have been finished, and another command interrupted, since the look.
  if (interrupted) MOE_RETURN_IF_ERROR(look_at_export(clean).status());
  ExportDirectory output(std::move(created));
  WorkDirectory& directory = output.directory_;
  MOE_RETURN_IF_ERROR(write_marker(directory.fd(), directory.marker_path().string()));
  MOE_RETURN_IF_ERROR(directory.remove_files());
  directory.remove_own_directories();
  return output;
}

ExportDirectory::ExportDirectory(ExportDirectory&& other) noexcept
    : directory_(std::move(other.directory_)), active_(std::exchange(other.active_, false)) {}

ExportDirectory::~ExportDirectory() {
  if (!active_) {
    directory_.release();
  } else if (directory_.is_locked()) {
    (void)directory_.remove_files();
    directory_.remove_own_directories();
    (void)directory_.remove_marker();
  }
}

Status ExportDirectory::finish() {
  // What the marker stood for must be durable before it goes.
  MOE_RETURN_IF_ERROR(sync_directory(path()));
  MOE_RETURN_IF_ERROR(directory_.remove_marker());
  active_ = false;
  return sync_directory(path());
}

}  // namespace moepack

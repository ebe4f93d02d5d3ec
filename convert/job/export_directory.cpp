#include "convert/job/export_directory.h"

#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/engine_files.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// In the marker, which tells the directory from an unfinished conversion: that has a journal there.
constexpr std::string_view kMarkerText = "moepack export\n";

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

// Whether the marker in `path` is that of an export. One that was killed before it wrote there
// leaves an empty marker and nothing else.
Result<bool> has_marker_of_export(const fs::path& path, const WorkFiles& files) {
  MOE_ASSIGN_OR_RETURN(const File marker, File::open(path / kUnfinishedMarker));
  std::string text(std::min<std::uint64_t>(marker.size(), kMarkerText.size()), '\0');
  MOE_RETURN_IF_ERROR(marker.read_at(0, std::as_writable_bytes(std::span(text))));
  return text.empty() ? files.own.size() == 1 : text == kMarkerText;
}

// True: an interrupted export is there.
Result<bool> look_at_export(const fs::path& path) {
  MOE_ASSIGN_OR_RETURN(const bool there, is_directory_there(path));
  if (!there) return false;
  MOE_ASSIGN_OR_RETURN(const WorkFiles files, list_work_files(path, kExportRules));
  if (files.own.empty() && files.foreign.empty()) return false;
  std::string what = "is not empty";
  std::string_view remedy = "remove the directory or name another one";
  if (is_there(path / kUnfinishedMarker)) {
    MOE_ASSIGN_OR_RETURN(const bool of_export, has_marker_of_export(path, files));
    if (of_export && files.foreign.empty()) return true;
    what = "holds an unfinished conversion";
    if (of_export) {
      what = "holds an interrupted export and also " + printable(files.foreign);
      remedy = "move that file away, or name another output directory";
    }
  }
  const std::string name = path.string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, what, remedy);
}

Status write_marker(int fd, const std::string& path) {
  const auto size = static_cast<ssize_t>(kMarkerText.size());
  if (::pwrite(fd, kMarkerText.data(), kMarkerText.size(), 0) == size) return Status::ok();
  return make_error(StatusCode::kIo, Where{.file = path},
                    std::string("cannot write: ") + std::strerror(errno));
}

}  // namespace

Result<ExportDirectory> ExportDirectory::take(const fs::path& path) {
  const fs::path clean = without_trailing_slash(path);
  MOE_ASSIGN_OR_RETURN(const bool interrupted, look_at_export(clean));
  MOE_ASSIGN_OR_RETURN(WorkDirectory created, WorkDirectory::create(clean, kExportRules));
  ExportDirectory output(std::move(created));
  WorkDirectory& directory = output.directory_;
  MOE_RETURN_IF_ERROR(directory.lock_marker(interrupted, "another command is writing there"));
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

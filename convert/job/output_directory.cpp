#include "convert/job/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "formats/base/file.h"
#include "formats/calibration/hot_experts.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kQualityStem = "moepack.quality_";

std::string without_tmp(std::string name) {
  if (name.ends_with(".tmp")) name.resize(name.size() - 4);
  return name;
}

bool is_own_top_file(const std::string& file) {
  const std::string name = without_tmp(file);
  return name == kUnfinishedMarker || name == kResidentManifestName || name == kResidentDataName ||
         is_companion(name);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

bool is_own_pack_file(const std::string& file) {
  const std::string name = without_tmp(file);
  if (name == kPackManifestName) return true;
  if (!name.starts_with("layer_") || !name.ends_with(".bin")) return false;
  return is_number(std::string_view(name).substr(6, name.size() - 10));
}

// What a quantization puts beside the files of a pack.
bool is_own_work_file(const std::string& file) {
  const std::string name = without_tmp(file);
  if (name == kUnfinishedMarker || name == kTieredManifestName || name == kHotExpertsName) {
    return true;
  }
  return name.starts_with(kQualityStem) && name.ends_with(".json") &&
         is_number(std::string_view(name).substr(kQualityStem.size(),
                                                 name.size() - kQualityStem.size() - 5));
}

bool is_own_header_file(const std::string& /*file*/) { return true; }

// A link is no directory, wherever it leads.
bool is_directory(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.symlink_status(ignored).type() == fs::file_type::directory;
}

// The files below `directory` that `is_own` claims; others go to `foreign`.
void sort_files(const fs::path& directory, bool (*is_own)(const std::string&),
                std::vector<fs::path>& own, std::string& foreign, std::error_code& error) {
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (!is_directory(*at) && is_own(at->path().filename().string())) {
      own.push_back(at->path());
    } else {
      foreign = at->path().string();
    }
  }
}

// Every file that writing `kind` to `path` may have left. Something else there: `foreign` is one
// such path.
Result<std::vector<fs::path>> own_files(const fs::path& path, OutputKind kind,
                                        std::string& foreign) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool directory = is_directory(*at);
    if (kind == OutputKind::kPack) {
      const bool own = !directory && (is_own_pack_file(name) || is_own_work_file(name));
      if (own) files.push_back(at->path());
      if (!own) foreign = at->path().string();
    } else if (directory && name == kDefaultPackName) {
      sort_files(at->path(), is_own_pack_file, files, foreign, error);
    } else if (directory && name == kSavedHeadersDirectory) {
      sort_files(at->path(), is_own_header_file, files, foreign, error);
    } else if (!directory && is_own_top_file(name)) {
      files.push_back(at->path());
    } else {
      foreign = at->path().string();
    }
    if (error) break;
  }
  if (!error) return files;
  return make_error(StatusCode::kIo, Where{.file = path.string()},
                    "cannot list the directory: " + error.message());
}

Status remove_own_files(const fs::path& path, OutputKind kind,
                        const std::set<fs::path>& kept = {}) {
  std::string foreign;
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> files, own_files(path, kind, foreign));
  for (const fs::path& file : files) {
    // The marker goes last of all, by the caller.
    if (file.filename() == kUnfinishedMarker || kept.contains(file)) continue;
    std::error_code error;
    fs::remove(file, error);
    if (error) {
      return make_error(StatusCode::kIo, Where{.file = file.string()},
                        "cannot remove it: " + error.message());
    }
  }
  return Status::ok();
}

// What stands at the place of the output.
enum class Found { kFree, kInterrupted };

Result<Found> inspect(const fs::path& path, OutputKind kind) {
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
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> files, own_files(path, kind, foreign));
  if (files.empty() && foreign.empty()) return Found::kFree;
  if (!fs::exists(path / kUnfinishedMarker, error)) {
    if (kind == OutputKind::kPack) {
      const bool finished = fs::exists(path / kPackManifestName, error);
      return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                        finished ? "already holds a pack" : "is not empty",
                        "give another --name or remove this directory");
    }
    const bool finished = fs::exists(path / kDefaultPackName / kPackManifestName, error);
    return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                      finished ? "already holds a converted model" : "is not empty",
                      "name another output directory or remove this one");
  }
  if (foreign.empty()) return Found::kInterrupted;
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    std::string("holds an interrupted ") +
                        (kind == OutputKind::kPack ? "quantization" : "conversion") + " and also " +
                        printable(foreign),
                    "move that file away, or name another output directory");
}

}  // namespace

std::string quality_file_name(std::uint32_t layer) {
  const std::string number = std::to_string(layer);
  return std::string(kQualityStem) + (number.size() < 2 ? "0" : "") + number + ".json";
}

Result<bool> OutputDirectory::check(const fs::path& path, OutputKind kind) {
  MOE_ASSIGN_OR_RETURN(const Found found, inspect(path, kind));
  return found == Found::kInterrupted;
}

fs::path OutputDirectory::marker_path() const { return path_ / kUnfinishedMarker; }

Status OutputDirectory::clear() { return remove_own_files(path_, kind_); }

Status OutputDirectory::keep_only(const std::set<fs::path>& files) {
  return remove_own_files(path_, kind_, files);
}

Status OutputDirectory::remove_temporary_files() {
  std::string foreign;
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> files, own_files(path_, kind_, foreign));
  std::set<fs::path> kept;
  for (const fs::path& file : files) {
    if (file.extension() != ".tmp") kept.insert(file);
  }
  return remove_own_files(path_, kind_, kept);
}

Status OutputDirectory::mark(bool exists) {
  const Status taken = make_error(StatusCode::kInvalidArgument, Where{.file = path_.string()},
                                  "another command is writing there");
  const std::string marker = (path_ / kUnfinishedMarker).string();
  marker_fd_ =
      ::open(marker.c_str(), (exists ? O_RDWR : O_RDWR | O_CREAT | O_EXCL) | O_CLOEXEC, 0644);
  if (marker_fd_ < 0) {
    if (errno == EEXIST || (exists && errno == ENOENT)) return taken;
    return make_error(StatusCode::kIo, Where{.file = marker},
                      std::string("cannot create: ") + std::strerror(errno),
                      "check the permissions of the directory");
  }
  struct stat info {};
  const bool locked = ::flock(marker_fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  // A marker without a name belonged to a conversion that has just finished.
  if (locked && ::fstat(marker_fd_, &info) == 0 && info.st_nlink > 0) return Status::ok();
  ::close(std::exchange(marker_fd_, -1));
  return taken;
}

Result<OutputDirectory> OutputDirectory::take(const fs::path& path, OutputKind kind) {
  fs::path clean = path.lexically_normal();
  if (clean.filename().empty()) clean = clean.parent_path();
  if (clean.empty()) return invalid_argument("no output directory was named");
  MOE_ASSIGN_OR_RETURN(const Found found, inspect(clean, kind));
  OutputDirectory output(std::move(clean), kind);
  output.active_ = true;
  MOE_RETURN_IF_ERROR(create_directories(output.path_, output.created_));
  MOE_RETURN_IF_ERROR(output.mark(found == Found::kInterrupted));
  output.keep_ = found == Found::kInterrupted;
  return output;
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      kind_(other.kind_),
      created_(std::move(other.created_)),
      marker_fd_(std::exchange(other.marker_fd_, -1)),
      active_(std::exchange(other.active_, false)),
      keep_(other.keep_) {}

OutputDirectory::~OutputDirectory() {
  if (active_ && !keep_) {
    std::error_code ignored;
    if (marker_fd_ >= 0) {
      (void)remove_own_files(path_, kind_);
      if (kind_ == OutputKind::kModel) {
        fs::remove(path_ / kDefaultPackName, ignored);
        fs::remove(path_ / kSavedHeadersDirectory, ignored);
      }
      fs::remove(path_ / kUnfinishedMarker, ignored);
    }
    // Only empty directories go.
    for (auto it = created_.rbegin(); it != created_.rend(); ++it) fs::remove(*it, ignored);
  }
  if (marker_fd_ >= 0) ::close(marker_fd_);
}

Result<fs::path> OutputDirectory::add_directory(const std::string& name) {
  fs::path directory = path_ / name;
  std::error_code error;
  fs::create_directory(directory, error);
  if (error) {
    return make_error(StatusCode::kIo, Where{.file = directory.string()},
                      "cannot create the directory: " + error.message());
  }
  created_.push_back(directory);
  MOE_RETURN_IF_ERROR(sync_directory(path_));
  return directory;
}

Status OutputDirectory::finish() {
  std::error_code error;
  std::string foreign;
  MOE_ASSIGN_OR_RETURN(const std::vector<fs::path> files, own_files(path_, kind_, foreign));
  for (const fs::path& file : files) {
    if (!file.filename().string().starts_with(kQualityStem)) continue;
    if (!error) fs::remove(file, error);
  }
  if (kind_ == OutputKind::kModel && !error) {
    fs::remove_all(path_ / kSavedHeadersDirectory, error);
  }
  if (error) {
    return make_error(StatusCode::kIo, Where{.file = path_.string()},
                      "cannot remove the files of an unfinished state: " + error.message());
  }
  fs::remove(path_ / kUnfinishedMarker, error);
  if (error) {
    return make_error(StatusCode::kIo, Where{.file = (path_ / kUnfinishedMarker).string()},
                      "cannot remove it: " + error.message());
  }
  active_ = false;
  return sync_directory(path_);
}

}  // namespace moepack

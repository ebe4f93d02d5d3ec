#include "convert/job/export_directory.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "formats/base/file.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

Status check_free(const fs::path& path) {
  std::error_code error;
  const std::string name = path.string();
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return Status::ok();
  if (status.type() != fs::file_type::directory) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                      "exists and is not a directory");
  }
  const bool is_empty = fs::is_empty(path, error);
  if (!error && is_empty) return Status::ok();
  const bool unfinished = fs::exists(path / kUnfinishedMarker, error);
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    unfinished ? "holds an unfinished conversion or export" : "is not empty",
                    "remove the directory or name another one");
}

Status create_marker(const fs::path& path) {
  const std::string name = path.string();
  const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return make_error(StatusCode::kIo, Where{.file = name},
                      std::string("cannot create: ") + std::strerror(errno));
  }
  ::close(fd);
  return Status::ok();
}

}  // namespace

Result<ExportDirectory> ExportDirectory::take(const fs::path& path) {
  fs::path clean = path.lexically_normal();
  if (clean.filename().empty()) clean = clean.parent_path();
  if (clean.empty()) return invalid_argument("no output directory was named");
  MOE_RETURN_IF_ERROR(check_free(clean));
  ExportDirectory directory(clean);
  directory.active_ = true;
  MOE_RETURN_IF_ERROR(create_directories(clean, directory.created_));
  MOE_RETURN_IF_ERROR(create_marker(clean / kUnfinishedMarker));
  directory.created_.push_back(clean / kUnfinishedMarker);
  return directory;
}

ExportDirectory::ExportDirectory(ExportDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      created_(std::move(other.created_)),
      active_(std::exchange(other.active_, false)) {}

ExportDirectory::~ExportDirectory() {
  if (!active_) return;
  std::error_code ignored;
  // Of directories only empty ones go.
  std::reverse(created_.begin(), created_.end());
  for (const fs::path& path : created_) fs::remove(path, ignored);
}

Result<fs::path> ExportDirectory::add_directory(const std::string& name) {
  fs::path directory = path_ / name;
  std::error_code error;
  fs::create_directory(directory, error);
  if (error) {
    return make_error(StatusCode::kIo, Where{.file = directory.string()},
                      "cannot create the directory: " + error.message());
  }
  created_.push_back(directory);
  return directory;
}

fs::path ExportDirectory::add_file(const fs::path& name) {
  created_.push_back(path_ / name);
  return created_.back();
}

Status ExportDirectory::finish() {
  std::error_code error;
  const fs::path marker = path_ / kUnfinishedMarker;
  // What the marker stood for must be durable before it goes.
  MOE_RETURN_IF_ERROR(sync_directory(path_));
  fs::remove(marker, error);
  if (error) {
    return make_error(StatusCode::kIo, Where{.file = marker.string()},
                      "cannot remove it: " + error.message());
  }
  active_ = false;
  return sync_directory(path_);
}

}  // namespace moepack

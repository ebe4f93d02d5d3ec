#include "formats/base/work_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/base/write_remedy.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporarySuffix = ".tmp";

std::string_view final_name(std::string_view name) {
  if (is_temporary_name(name)) name.remove_suffix(kTemporarySuffix.size());
  return name;
}

// A link is no directory, wherever it leads.
bool is_real_directory(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.symlink_status(ignored).type() == fs::file_type::directory;
}

// `own`: the name of the own directory that `path` is; "": the work directory itself.
Status sort_files(const fs::path& path, const WorkRules& rules, const std::string& own,
                  WorkFiles& files) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool directory = is_real_directory(*at);
    if (directory && own.empty() && rules.is_own_directory != nullptr &&
        rules.is_own_directory(name)) {
      MOE_RETURN_IF_ERROR(sort_files(at->path(), rules, name, files));
    } else if (!directory && ((own.empty() && final_name(name) == rules.marker) ||
                              rules.is_own_file(own, final_name(name)))) {
      files.own.push_back(at->path());
    } else {
      files.foreign = at->path().string();
    }
  }
  if (!error) return Status::ok();
  return make_error(StatusCode::kIo, Where{.file = path.string()},
                    "cannot list the directory: " + error.message(), write_remedy(error.value()));
}

// False only where somebody else holds the lock; file systems without locks count as free.
bool lock_descriptor(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

}  // namespace

bool is_temporary_name(std::string_view name) { return name.ends_with(kTemporarySuffix); }

bool is_numbered_name(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size()) return false;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return false;
  name = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

Result<WorkFiles> list_work_files(const fs::path& path, const WorkRules& rules) {
  WorkFiles files;
  MOE_RETURN_IF_ERROR(sort_files(path, rules, "", files));
  return files;
}

Result<bool> is_directory_there(const fs::path& path) {
  const Status link = check_link(path, "remove the link, or name another place");
  if (!link.is_ok()) return make_error(StatusCode::kInvalidArgument, Where{}, link.message());
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (status.type() == fs::file_type::directory) return true;
  const std::string name = path.string();
  return make_error(
      StatusCode::kInvalidArgument, Where{.file = name},
      error ? "cannot be looked at: " + error.message() : "exists and is not a directory");
}

Result<WorkDirectory> WorkDirectory::create(const fs::path& path, const WorkRules& rules) {
  WorkDirectory directory(without_trailing_slash(path), rules);
  if (directory.path_.empty()) return invalid_argument("no output directory was named");
  MOE_RETURN_IF_ERROR(create_directories(directory.path_, directory.created_));
  return directory;
}

WorkDirectory::WorkDirectory(WorkDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      rules_(other.rules_),
      created_(std::exchange(other.created_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

WorkDirectory::~WorkDirectory() {
  std::error_code ignored;
  for (auto it = created_.rbegin(); it != created_.rend(); ++it) fs::remove(*it, ignored);
  if (fd_ >= 0) ::close(fd_);
}

Status WorkDirectory::lock(std::string_view taken) {
  const std::string name = path_.string();
  fd_ = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) {
    return make_error(StatusCode::kIo, Where{.file = name},
                      std::string("cannot open the directory: ") + std::strerror(errno),
                      write_remedy(errno));
  }
  if (lock_descriptor(fd_)) return Status::ok();
  ::close(std::exchange(fd_, -1));
  release();  // whoever has it needs it
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, taken);
}

Status WorkDirectory::lock_marker(bool exists, std::string_view taken) {
  const Status busy =
      make_error(StatusCode::kInvalidArgument, Where{.file = path_.string()}, taken);
  const std::string marker = marker_path().string();
  fd_ = ::open(marker.c_str(), (exists ? O_RDWR : O_RDWR | O_CREAT | O_EXCL) | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    if (errno == EEXIST || (exists && errno == ENOENT)) return busy;
    return make_error(StatusCode::kIo, Where{.file = marker},
                      std::string("cannot create: ") + std::strerror(errno),
                      write_remedy(errno, "check the permissions of the directory"));
  }
  struct stat info {};
  // A marker without a name belonged to a command that has just finished.
  if (!lock_descriptor(fd_) || ::fstat(fd_, &info) != 0 || info.st_nlink == 0) {
    ::close(std::exchange(fd_, -1));
    return busy;
  }
  if (exists) return Status::ok();
  const Result<bool> alone = holds_only_the_marker();
  if (alone.is_ok() && alone.value()) return Status::ok();
  ::unlink(marker.c_str());
  ::close(std::exchange(fd_, -1));
  return alone.is_ok() ? busy : alone.status();
}

Result<bool> WorkDirectory::holds_only_the_marker() const {
  MOE_ASSIGN_OR_RETURN(const WorkFiles found, files());
  return found.foreign.empty() && found.own.size() == 1;
}

Result<fs::path> WorkDirectory::add_directory(const std::string& name) {
  fs::path directory = path_ / name;
  std::error_code error;
  fs::create_directory(directory, error);
  if (error) {
    return make_error(StatusCode::kIo, Where{.file = directory.string()},
                      "cannot create the directory: " + error.message(),
                      write_remedy(error.value()));
  }
  created_.push_back(directory);
  MOE_RETURN_IF_ERROR(sync_directory(path_));
  return directory;
}

Status WorkDirectory::remove_files(const std::set<fs::path>& kept) const {
  MOE_ASSIGN_OR_RETURN(const WorkFiles found, files());
  for (const fs::path& file : found.own) {
    if (file == marker_path() || kept.contains(file)) continue;
    MOE_RETURN_IF_ERROR(remove_path(file));
  }
  return Status::ok();
}

Status WorkDirectory::remove_temporary_files() const {
  MOE_ASSIGN_OR_RETURN(const WorkFiles found, files());
  for (const fs::path& file : found.own) {
    if (!is_temporary_name(file.filename().string())) continue;
    MOE_RETURN_IF_ERROR(remove_path(file));
  }
  return Status::ok();
}

void WorkDirectory::remove_own_directories() const {
  if (rules_.is_own_directory == nullptr) return;
  std::error_code error;
  std::vector<fs::path> directories;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    if (is_real_directory(*at) && rules_.is_own_directory(at->path().filename().string())) {
      directories.push_back(at->path());
    }
  }
  for (const fs::path& directory : directories) fs::remove(directory, error);  // only empty ones
}

Status WorkDirectory::remove_marker() const { return remove_path(marker_path()); }

}  // namespace moepack

// A directory while a command makes it: which of its files are the command's own, that nobody else
// writes there, and what is removed when the command ends early.
//
// Until the directory is whole it holds a marker, a file of a known name. What else stands in it is
// told by name: an own file may be removed, and anything foreign keeps the directory from being
// taken. What the marker holds, and whether the next run continues or starts again, is the owner's.
//
// The locks are the file system's (flock). Some network mounts keep them within one host (NFS with
// nolock or local_lock); there a command of another host is not seen.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// How the files of one kind of directory are told by name.
struct WorkRules {
  std::string_view marker;
  // Whether a file in the directory, or in one of its own directories (`directory` is its name
  // then, else empty), is the command's own. Names come without the suffix of temporary files.
  bool (*is_own_file)(std::string_view directory, std::string_view name);
  // Whether `name` is a directory that the command makes; empty: it makes none.
  bool (*is_own_directory)(std::string_view name) = nullptr;
};

struct WorkFiles {
  std::vector<std::filesystem::path> own;  // marker and temporary files included
  std::string foreign;                     // a path that is not the command's own; "": none
};

// Whether `name` is that of a file which is not whole yet (AtomicFile).
bool is_temporary_name(std::string_view name);
// "layer_07.bin" for "layer_", ".bin": only digits, at least one, between the two.
bool is_numbered_name(std::string_view name, std::string_view prefix, std::string_view suffix);

// kIo: a directory cannot be listed.
Result<WorkFiles> list_work_files(const std::filesystem::path& path, const WorkRules& rules);

// Whether `path` exists. Something else than a directory there, or a link that leads nowhere:
// kInvalidArgument.
Result<bool> is_directory_there(const std::filesystem::path& path);

class WorkDirectory {
 public:
  // Creates `path` and missing directories above it, or takes the one that is there. Nothing is
  // locked yet. kInvalidArgument: `path` is empty.
  static Result<WorkDirectory> create(const std::filesystem::path& path, const WorkRules& rules);

  WorkDirectory(WorkDirectory&& other) noexcept;
  WorkDirectory& operator=(WorkDirectory&&) = delete;
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  // Unlocks. Removes, unless release() was called, the directories that were created as far as they
  // are empty. Files stay.
  ~WorkDirectory();

  // Locks the directory itself until this object goes. kInvalidArgument with `taken` as its words:
  // another command has it.
  Status lock(std::string_view taken);
  // Creates the marker, or with `exists` opens it, for reading and writing, and locks it. The same
  // error when another command has it, or had it and has just finished; also when a new marker does
  // not stand alone in the directory: what came there since it was found empty is another's.
  Status lock_marker(bool exists, std::string_view taken);
  bool is_locked() const { return fd_ >= 0; }
  // Of what was locked.
  int fd() const { return fd_; }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path marker_path() const { return path_ / rules_.marker; }
  Result<WorkFiles> files() const { return list_work_files(path_, rules_); }

  // Creates `name` below path(), durably, or takes it.
  Result<std::filesystem::path> add_directory(const std::string& name);
  // Removes the own files but the marker and those of `kept`.
  Status remove_files(const std::set<std::filesystem::path>& kept = {}) const;
  Status remove_temporary_files() const;
  // Removes own directories that are empty. Best effort.
  void remove_own_directories() const;
  Status remove_marker() const;
  // The directory is somebody's now: what was created stays.
  void release() { created_.clear(); }

 private:
  WorkDirectory(std::filesystem::path path, const WorkRules& rules)
      : path_(std::move(path)), rules_(rules) {}

  Result<bool> holds_only_the_marker() const;

  std::filesystem::path path_;
  WorkRules rules_;
  std::vector<std::filesystem::path> created_;  // directories, outermost first
  int fd_ = -1;                                 // holds the lock
};

}  // namespace moepack

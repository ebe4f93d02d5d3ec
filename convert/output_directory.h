// The directory a conversion writes to: taken only when nothing of others is in it, and left as it
// was found when the conversion fails.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/status.h"

namespace moepack {

class OutputDirectory {
 public:
  // Creates `path` and missing directories above it, or takes an existing one that is empty or
  // holds an interrupted conversion, whose files are removed. Anything else in it: kInvalidArgument
  // and nothing is touched. While the object lives no second conversion can take the directory.
  static Result<OutputDirectory> take(const std::filesystem::path& path);
  // Looks whether take() would succeed, without changing anything.
  static Status check(const std::filesystem::path& path);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  // Without finish(): removes every file that the conversion may have written and the directories
  // that take() and add_directory() created.
  ~OutputDirectory();

  const std::filesystem::path& path() const { return path_; }
  // Creates `name` below path().
  Result<std::filesystem::path> add_directory(const std::string& name);
  // Removes the marker; from here on the directory is a finished one.
  Status finish();

 private:
  explicit OutputDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  Status create_missing();
  Status mark(bool exists);

  std::filesystem::path path_;
  std::vector<std::filesystem::path> created_;  // directories, outermost first
  int marker_fd_ = -1;                          // holds the lock
  bool active_ = false;
};

}  // namespace moepack

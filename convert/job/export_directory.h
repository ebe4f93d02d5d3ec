// The directory an export writes to: new or empty, and removed again when the export fails.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

class ExportDirectory {
 public:
  // Creates `path` and missing directories above it, or takes an empty one, and puts the marker of
  // unfinished directories into it. kInvalidArgument: something is there already.
  static Result<ExportDirectory> take(const std::filesystem::path& path);

  ExportDirectory(ExportDirectory&& other) noexcept;
  ExportDirectory& operator=(ExportDirectory&&) = delete;
  ExportDirectory(const ExportDirectory&) = delete;
  ExportDirectory& operator=(const ExportDirectory&) = delete;
  // Without finish(): removes what was announced by add_file and add_directory.
  ~ExportDirectory();

  const std::filesystem::path& path() const { return path_; }
  // Creates the directory `name`.
  Result<std::filesystem::path> add_directory(const std::string& name);
  // The path of a file about to be written; `name` may lie in an added directory.
  std::filesystem::path add_file(const std::filesystem::path& name);
  // Removes the marker: the directory is complete.
  Status finish();

 private:
  explicit ExportDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::vector<std::filesystem::path> created_;  // in order of creation
  bool active_ = false;
};

}  // namespace moepack

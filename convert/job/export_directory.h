// The directory an export writes to: new, empty, or left by an export that was interrupted, which
// starts again. It is removed when the export fails.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "formats/base/status.h"
#include "formats/base/work_directory.h"

namespace moepack {

class ExportDirectory {
 public:
  // Creates `path` and missing directories above it, or takes an empty one, or one in which nothing
  // stands but what an interrupted export left, which is removed. The marker of unfinished
  // directories is in it then, and no second export can take it while the object lives.
  // kInvalidArgument: something else is there already.
  static Result<ExportDirectory> take(const std::filesystem::path& path);

  ExportDirectory(ExportDirectory&& other) noexcept;
  ExportDirectory& operator=(ExportDirectory&&) = delete;
  ExportDirectory(const ExportDirectory&) = delete;
  ExportDirectory& operator=(const ExportDirectory&) = delete;
  // Without finish(): removes everything that the export wrote, and what take() created.
  ~ExportDirectory();

  const std::filesystem::path& path() const { return directory_.path(); }
  // Creates the directory `name`, one of packed_experts and packed_experts_2bit.
  Result<std::filesystem::path> add_directory(const std::string& name) {
    return directory_.add_directory(name);
  }
  // The path of a file about to be written; `name` may lie in an added directory.
  std::filesystem::path add_file(const std::filesystem::path& name) const { return path() / name; }
  // Removes the marker: the directory is complete.
  Status finish();

 private:
  explicit ExportDirectory(WorkDirectory directory) : directory_(std::move(directory)) {}

  WorkDirectory directory_;
  bool active_ = true;
};

}  // namespace moepack

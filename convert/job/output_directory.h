// The directory a conversion or a quantization writes to: taken only when nothing of others is in
// it. A conversion that fails leaves it as it was found, or with what is finished, for the next run
// to continue.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "formats/base/status.h"
#include "formats/base/work_directory.h"

namespace moepack {

// Below the output while a conversion with --reclaim runs: headers of the source's shards.
constexpr const char* kSavedHeadersDirectory = "moepack.headers";
// In a pack while it is being quantized: what is known about the quality of a finished layer.
// "moepack.quality_00.json".
std::string quality_file_name(std::uint32_t layer);

// What will be written: which files are the command's own, and how it is called in messages.
enum class OutputKind : std::uint8_t {
  kModel,          // a model directory, by a conversion
  kPack,           // one expert pack, by a quantization
  kOverlayPack,    // one expert pack, by an overlay
  kReorderedPack,  // one expert pack, by a conversion of another
};

class OutputDirectory {
 public:
  // Creates `path` and missing directories above it, or takes an existing one that is empty or
  // holds what the same kind of command left. Anything else in it, and what another kind of command
  // has not finished: kInvalidArgument and nothing is touched.
  // While the object lives no second conversion can take the directory. No file is removed yet:
  // call keep_only() before writing.
  static Result<OutputDirectory> take(const std::filesystem::path& path,
                                      OutputKind kind = OutputKind::kModel);
  // Looks whether take() would succeed, without changing anything. True: an interrupted conversion
  // is there.
  static Result<bool> check(const std::filesystem::path& path,
                            OutputKind kind = OutputKind::kModel);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  // Without finish(): leaves everything where keep() was called or an interrupted conversion was
  // found, unless discard() was called after that; else removes every file that the conversion may
  // have written and the directories that take() and add_directory() created.
  ~OutputDirectory();

  const std::filesystem::path& path() const { return directory_.path(); }
  // The marker, open for reading and writing and locked; closed with this object. It holds the
  // journal.
  int marker_fd() const { return directory_.fd(); }
  std::filesystem::path marker_path() const { return directory_.marker_path(); }
  // Removes what an interrupted conversion left, but the marker and `files` (paths below path(),
  // with path() in front).
  Status keep_only(const std::set<std::filesystem::path>& files);
  // Removes only what is under a temporary name.
  Status remove_temporary_files();
  // Creates `name` below path(), or takes it.
  Result<std::filesystem::path> add_directory(const std::string& name) {
    return directory_.add_directory(name);
  }
  // The destructor leaves everything, marker included, for a later run.
  void keep() { keep_ = true; }
  // The destructor removes everything.
  void discard() { keep_ = false; }
  // Removes the saved headers and the marker; from here on the directory is a finished one.
  Status finish();

 private:
  OutputDirectory(WorkDirectory directory, OutputKind kind)
      : directory_(std::move(directory)), kind_(kind) {}

  WorkDirectory directory_;
  OutputKind kind_;
  bool active_ = true;
  bool keep_ = false;
};

}  // namespace moepack

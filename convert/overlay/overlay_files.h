// MODEL/gguf while overlays are written to it: all files of a call appear together, or none.
//
// They are written into gguf/moepack.unfinished. When they are complete and synced, that directory
// is renamed to moepack.complete and older files of the groups are removed; then it is renamed to
// moepack.moving, and the files move up. Whatever interrupts this, the next call finishes it or
// drops the unfinished files; until then the groups are missing, never mixed.
#pragma once

#include <filesystem>
#include <span>
#include <utility>

#include "convert/job/progress_counter.h"
#include "convert/overlay/overlay_plan.h"
#include "formats/base/status.h"
#include "formats/base/work_directory.h"

namespace moepack {

// True when the file of `planned` is there already, told by its manifest and the checksum of its
// bytes; that checksum is then filled in. With `replace` no file counts as there. kInvalidArgument:
// files of its group from elsewhere are there, and `replace` is false.
Result<bool> is_overlay_there(const OverlaidModel& model, bool replace, PlannedOverlay& planned);

class OverlayDirectory {
 public:
  // Creates the directory if there is none, and finishes what an earlier call left. While the
  // object lives no other call can take it: kInvalidArgument.
  static Result<OverlayDirectory> take(const std::filesystem::path& model);
  OverlayDirectory(OverlayDirectory&& other) noexcept = default;
  OverlayDirectory& operator=(OverlayDirectory&&) = delete;
  OverlayDirectory(const OverlayDirectory&) = delete;
  OverlayDirectory& operator=(const OverlayDirectory&) = delete;
  // Removes what is not complete, and the directory if it was created and is empty.
  ~OverlayDirectory();

  // Writes the files, which are all those of their groups, in place of the groups' older ones, and
  // fills in the checksums.
  Status write(std::span<PlannedOverlay*> planned, std::size_t threads, ProgressCounter& progress);

 private:
  explicit OverlayDirectory(WorkDirectory directory) : directory_(std::move(directory)) {}
  const std::filesystem::path& path() const { return directory_.path(); }
  Status publish();

  WorkDirectory directory_;
};

}  // namespace moepack

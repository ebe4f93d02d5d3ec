// Writes overlays into MODEL/gguf: all of a call appear together, or none.
#pragma once

#include <filesystem>
#include <span>

#include "convert/overlay_plan.h"
#include "convert/progress_counter.h"
#include "formats/status.h"

namespace moepack {

// True when the file of `planned` is there already with the same contents, by its manifest; its
// checksum is filled in then. kInvalidArgument: files of its group from elsewhere are there, and
// `replace` is false.
Result<bool> is_overlay_there(const OverlaidModel& model, bool replace, PlannedOverlay& planned);

// Writes those files, all of each group that is among them, in place of the groups' older ones,
// through a directory of its own below MODEL/gguf; fills in the checksums.
Status write_overlay_files(const std::filesystem::path& model, std::span<PlannedOverlay*> planned,
                           std::size_t threads, ProgressCounter& progress);

}  // namespace moepack

// A directory that a command left before it was whole: which command it was, and what to do.
//
// Commands that write directories put a marker there first (formats/base/work_directory.h). Several
// of them call it kUnfinishedMarker; what it holds tells them apart. Exports write
// kExportMarkerText into it; conversions, quantizations and overlays a journal, whose first line
// states the command; for overlays in MODEL/gguf it is a directory. Calibrations have a marker of
// another name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

inline constexpr std::string_view kExportMarkerText = "moepack export\n";

enum class WorkKind : std::uint8_t {
  kNone,     // no marker
  kUnknown,  // a marker that does not say: its command was killed before it wrote there
  kConversion,
  kQuantization,  // by quantize or tier
  kOverlay,
  kExport,
  kCalibration,
};

// As journals state it: "convert". "" for kinds that have none.
std::string_view journal_command(WorkKind kind);
// "moepack convert", or "the command that makes it" where that is not known.
std::string_view work_command(WorkKind kind);

// By the marker in `directory`. A marker that cannot be read: kUnknown.
WorkKind find_unfinished_work(const std::filesystem::path& directory);

// The error of whoever wants to read what stands unfinished in `directory`.
Status unfinished_work_error(const std::filesystem::path& directory, StatusCode code);

// For a command that wants to write to `directory`: ok unless another kind of command left it
// unfinished. kInvalidArgument otherwise.
Status check_no_other_work(const std::filesystem::path& directory, WorkKind own);

}  // namespace moepack

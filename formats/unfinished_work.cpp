#include "formats/unfinished_work.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/calibration/calibration_state.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// The first line of a journal: a checksum, a space, an object. Longer ones say no command.
constexpr std::size_t kJournalSumChars = 17;
constexpr std::uint64_t kMaxMarkerHead = std::uint64_t{64} << 10;

struct WorkKindRow {
  WorkKind kind;
  std::string_view in_journal;
  std::string_view command;
};
constexpr std::array<WorkKindRow, 5> kWorkKinds{{
    {WorkKind::kConversion, "convert", "moepack convert"},
    {WorkKind::kQuantization, "quantize", "moepack quantize or tier"},
    {WorkKind::kOverlay, "overlay", "moepack overlay"},
    {WorkKind::kExport, "", "moepack export"},
    {WorkKind::kCalibration, "", "moepack calibrate"},
}};

const WorkKindRow* find_row(WorkKind kind) {
  const auto* const row = std::find_if(kWorkKinds.begin(), kWorkKinds.end(),
                                       [&](const WorkKindRow& r) { return r.kind == kind; });
  return row == kWorkKinds.end() ? nullptr : row;
}

// "" where it cannot be read.
std::string head_of(const fs::path& marker) {
  const auto file = File::open(marker);
  if (!file.is_ok()) return {};
  std::string text(std::min(file.value().size(), kMaxMarkerHead), '\0');
  const Status read = file.value().read_at(0, std::as_writable_bytes(std::span(text)));
  return read.is_ok() ? text : std::string();
}

WorkKind kind_in_journal(std::string_view text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || end <= kJournalSumChars) return WorkKind::kUnknown;
  const auto json =
      nlohmann::json::parse(text.substr(kJournalSumChars, end - kJournalSumChars), nullptr, false);
  if (!json.is_object() || !json.contains("command")) return WorkKind::kUnknown;
  const auto* command = json["command"].get_ptr<const std::string*>();
  for (const WorkKindRow& row : kWorkKinds) {
    if (command != nullptr && !row.in_journal.empty() && *command == row.in_journal)
      return row.kind;
  }
  return WorkKind::kUnknown;
}

// True of a command that was interrupted, of one that is at work, and of a conversion of some
// layers.
std::string not_at_its_end(WorkKind kind) {
  return "is not finished: " + std::string(work_command(kind)) + " has not come to its end there";
}

std::string again(WorkKind kind) {
  if (kind == WorkKind::kUnknown) return "run that command again";
  std::string remedy = "run the same " + std::string(work_command(kind)) + " again";
  // An unfinished conversion may be the only copy of its source (--reclaim).
  if (kind != WorkKind::kConversion) remedy += ", or remove the directory";
  return remedy;
}

}  // namespace

std::string_view journal_command(WorkKind kind) {
  const WorkKindRow* row = find_row(kind);
  return row == nullptr ? std::string_view() : row->in_journal;
}

std::string_view work_command(WorkKind kind) {
  const WorkKindRow* row = find_row(kind);
  return row == nullptr ? "the command that makes it" : row->command;
}

WorkKind find_unfinished_work(const fs::path& directory) {
  const fs::path marker = directory / kUnfinishedMarker;
  std::error_code ignored;
  if (fs::is_directory(marker, ignored)) return WorkKind::kOverlay;
  if (is_there(marker)) {
    const std::string text = head_of(marker);
    return text.starts_with(kExportMarkerText) ? WorkKind::kExport : kind_in_journal(text);
  }
  return is_there(directory / kCalibrationStateName) ? WorkKind::kCalibration : WorkKind::kNone;
}

Status unfinished_work_error(const fs::path& directory, StatusCode code) {
  const std::string name = directory.string();
  const WorkKind kind = find_unfinished_work(directory);
  return make_error(code, Where{.file = name}, not_at_its_end(kind), again(kind));
}

Status check_no_other_work(const fs::path& directory, WorkKind own) {
  const WorkKind kind = find_unfinished_work(directory);
  if (kind == WorkKind::kNone || kind == WorkKind::kUnknown || kind == own) return Status::ok();
  const std::string name = directory.string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, not_at_its_end(kind),
                    again(kind) + ", or name another place");
}

}  // namespace moepack

// A directory that one kind of command left unfinished is taken by no other kind, and whoever meets
// it says which command it was.
#include "formats/unfinished_work.h"

#include <gtest/gtest.h>

#include "convert/job/export_directory.h"
#include "convert/job/journal.h"
#include "convert/job/output_directory.h"
#include "formats/calibration/calibration_state.h"
#include "formats/model_dir.h"
#include "tests/convert/model_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace moepack::unfinished_work_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;

struct WorkOf {
  WorkKind kind;
  std::string_view command;
};
constexpr WorkOf kWorks[] = {{WorkKind::kConversion, "moepack convert"},
                             {WorkKind::kQuantization, "moepack quantize"},
                             {WorkKind::kOverlay, "moepack overlay"},
                             {WorkKind::kExport, "moepack export"},
                             {WorkKind::kCalibration, "moepack calibrate"}};

Status start_output(const fs::path& path, OutputKind kind, WorkKind work) {
  MOE_ASSIGN_OR_RETURN(OutputDirectory output, OutputDirectory::take(path, kind));
  output.keep();
  MOE_ASSIGN_OR_RETURN(ConversionJournal journal,
                       ConversionJournal::open(output.marker_fd(), output.marker_path().string()));
  return journal.start(work, 7, "a test");
}

// What the command leaves when it is killed after its first record, with a file of its own.
void leave(const fs::path& path, WorkKind kind) {
  switch (kind) {
    case WorkKind::kConversion:
      ASSERT_OK(start_output(path, OutputKind::kModel, kind));
      break;
    case WorkKind::kQuantization:
      ASSERT_OK(start_output(path, OutputKind::kPack, kind));
      break;
    case WorkKind::kOverlay:
      ASSERT_OK(start_output(path, OutputKind::kOverlayPack, kind));
      break;
    case WorkKind::kExport:
      fs::create_directory(path);
      test::write_file(path / kUnfinishedMarker, std::string(kExportMarkerText));
      break;
    default:
      fs::create_directory(path);
      test::write_file(path / kCalibrationStateName, "{}");
  }
  // Each takes one of these for its own.
  test::write_file(path / "config.json", "{}");
  test::write_file(path / "layout.json", "{}");
}

// Tries to take `path` as `kind` would.
Status take(const fs::path& path, WorkKind kind) {
  switch (kind) {
    case WorkKind::kConversion:
      return OutputDirectory::take(path, OutputKind::kModel).status();
    case WorkKind::kQuantization:
      return OutputDirectory::take(path, OutputKind::kPack).status();
    case WorkKind::kOverlay:
      return OutputDirectory::take(path, OutputKind::kOverlayPack).status();
    case WorkKind::kExport:
      return ExportDirectory::take(path).status();
    default:
      return check_no_other_work(path, kind);
  }
}

TEST(UnfinishedWork, NoOtherCommandTakesIt) {
  for (const WorkOf& left : kWorks) {
    const TempDir dir;
    const fs::path path = dir / "out";
    ASSERT_NO_FATAL_FAILURE(leave(path, left.kind));
    EXPECT_EQ(find_unfinished_work(path), left.kind) << left.command;
    const auto before = test::directory_contents(path);
    for (const WorkOf& other : kWorks) {
      if (other.kind == left.kind) continue;
      expect_error(take(path, other.kind), StatusCode::kInvalidArgument,
                   {"out", "not finished", left.command, "again"});
      EXPECT_EQ(test::directory_contents(path) == before, true) << other.command;
    }
  }
}

TEST(UnfinishedWork, ReadersNameTheCommand) {
  for (const WorkOf& left : kWorks) {
    if (left.kind == WorkKind::kCalibration) continue;  // never where a model is looked for
    const TempDir dir;
    const fs::path pack = dir / "packed_experts_x";
    ASSERT_NO_FATAL_FAILURE(leave(pack, left.kind));
    const std::string remedy = "run the same " + std::string(left.command);
    expect_error(check_model_finished(pack), StatusCode::kCorrupt,
                 {"packed_experts_x", "not finished", left.command, remedy});
    expect_error(read_pack_directory(pack, {}).status(), StatusCode::kNotFound,
                 {"packed_experts_x", "not finished", left.command, remedy});
  }
}

// As moepack 0.1.0 wrote it, and as a command leaves it that is killed at once.
TEST(UnfinishedWork, AMarkerThatNamesNoCommandIsOfAny) {
  const std::string old = R"(0123456789abcdef {"journal": 1, "plan": "00", "what": "x"})";
  for (const std::string& text : {old + "\n", old, std::string(), std::string("\n"),
                                  std::string("0123456789abcdef {\"command\": 7}\n"),
                                  std::string("0123456789abcdef [\"command\"]\n")}) {
    const TempDir dir;
    test::write_file(dir / kUnfinishedMarker, text);
    EXPECT_EQ(find_unfinished_work(dir.path()), WorkKind::kUnknown) << text;
    EXPECT_OK(check_no_other_work(dir.path(), WorkKind::kConversion));
    expect_error(check_model_finished(dir.path()), StatusCode::kCorrupt,
                 {"not finished", "run that command again"});
  }
}

// MODEL/gguf while overlays are put in place.
TEST(UnfinishedWork, ADirectoryOfThatNameIsAnOverlays) {
  const TempDir dir;
  fs::create_directories(dir / "gguf" / kUnfinishedMarker);
  expect_error(ExportDirectory::take(dir / "gguf").status(), StatusCode::kInvalidArgument,
               {"gguf", "moepack overlay"});
  EXPECT_TRUE(fs::is_directory(dir / "gguf" / kUnfinishedMarker));
}

}  // namespace
}  // namespace moepack::unfinished_work_test

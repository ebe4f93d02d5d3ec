#include "convert/job/output_directory.h"

#include <system_error>

#include "formats/base/file.h"
#include "formats/base/paths.h"
#include "formats/calibration/hot_experts.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/prediction_manifest.h"
#include "formats/pack/resident_manifest.h"
#include "formats/unfinished_work.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kQualityStem = "moepack.quality_";

bool is_pack_file(std::string_view name) {
  return name == kPackManifestName || is_numbered_name(name, "layer_", ".bin");
}

// What a quantization puts beside the files of a pack.
bool is_beside_pack(std::string_view name) {
  return name == kTieredManifestName || name == kHotExpertsName ||
         is_numbered_name(name, kQualityStem, ".json");
}

bool is_model_file(std::string_view directory, std::string_view name) {
  if (directory == kSavedHeadersDirectory) return true;
  if (directory == kDefaultPackName) return is_pack_file(name);
  return name == kResidentManifestName || name == kResidentDataName ||
         name == kPredictionManifestName || name == kPredictionDataName || is_companion(name);
}

bool is_model_directory(std::string_view name) {
  return name == kDefaultPackName || name == kSavedHeadersDirectory;
}

bool is_file_of_pack(std::string_view /*directory*/, std::string_view name) {
  return is_pack_file(name) || is_beside_pack(name);
}

WorkRules output_rules(OutputKind kind) {
  if (kind == OutputKind::kModel) {
    return {.marker = kUnfinishedMarker,
            .is_own_file = is_model_file,
            .is_own_directory = is_model_directory};
  }
  return {.marker = kUnfinishedMarker, .is_own_file = is_file_of_pack};
}

struct OutputWork {
  WorkKind kind;
  std::string_view noun;
};

OutputWork output_work(OutputKind kind) {
  switch (kind) {
    case OutputKind::kPack:
      return {WorkKind::kQuantization, "quantization"};
    case OutputKind::kOverlayPack:
      return {WorkKind::kOverlay, "overlay"};
    case OutputKind::kModel:
    case OutputKind::kReorderedPack:
      break;
  }
  return {WorkKind::kConversion, "conversion"};
}

// What stands at the place of the output.
enum class OutputPlace { kFree, kInterrupted };

Result<OutputPlace> look_at_output(const fs::path& path, OutputKind kind) {
  MOE_ASSIGN_OR_RETURN(const bool there, is_directory_there(path));
  if (!there) return OutputPlace::kFree;
  MOE_RETURN_IF_ERROR(check_no_other_work(path, output_work(kind).kind));
  const std::string name = path.string();
  MOE_ASSIGN_OR_RETURN(const WorkFiles files, list_work_files(path, output_rules(kind)));
  if (files.own.empty() && files.foreign.empty()) return OutputPlace::kFree;
  if (!is_there(path / kUnfinishedMarker)) {
    if (kind != OutputKind::kModel) {
      const bool finished = is_there(path / kPackManifestName);
      return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                        finished ? "already holds a pack" : "is not empty",
                        kind == OutputKind::kReorderedPack
                            ? "name another directory or remove this one"
                            : "give another --name or remove this directory");
    }
    const bool finished = is_there(path / kDefaultPackName / kPackManifestName);
    return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                      finished ? "already holds a converted model" : "is not empty",
                      "name another output directory or remove this one");
  }
  if (files.foreign.empty()) return OutputPlace::kInterrupted;
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    "holds an interrupted " + std::string(output_work(kind).noun) + " and also " +
                        printable(files.foreign),
                    "move that file away, or name another output directory");
}

}  // namespace

std::string quality_file_name(std::uint32_t layer) {
  const std::string number = std::to_string(layer);
  return std::string(kQualityStem) + (number.size() < 2 ? "0" : "") + number + ".json";
}

Result<bool> OutputDirectory::check(const fs::path& path, OutputKind kind) {
  MOE_ASSIGN_OR_RETURN(const OutputPlace place, look_at_output(path, kind));
  return place == OutputPlace::kInterrupted;
}

Result<OutputDirectory> OutputDirectory::take(const fs::path& path, OutputKind kind) {
  const fs::path clean = without_trailing_slash(path);
  MOE_ASSIGN_OR_RETURN(const OutputPlace place, look_at_output(clean, kind));
  const bool interrupted = place == OutputPlace::kInterrupted;
  MOE_ASSIGN_OR_RETURN(WorkDirectory directory, WorkDirectory::create(clean, output_rules(kind)));
  OutputDirectory output(std::move(directory), kind);
  MOE_RETURN_IF_ERROR(
      output.directory_.lock_marker(interrupted, "another command is writing there"));
  output.keep_ = interrupted;
  // What was interrupted may have been finished, and another command interrupted, since the look.
  if (interrupted) MOE_RETURN_IF_ERROR(look_at_output(clean, kind).status());
  return output;
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : directory_(std::move(other.directory_)),
      kind_(other.kind_),
      active_(std::exchange(other.active_, false)),
      keep_(other.keep_) {}

OutputDirectory::~OutputDirectory() {
  if (!active_ || keep_) {
    directory_.release();
  } else if (directory_.is_locked()) {
    (void)directory_.remove_files();
    directory_.remove_own_directories();
    (void)directory_.remove_marker();
  }
}

Status OutputDirectory::keep_only(const std::set<fs::path>& files) {
  return directory_.remove_files(files);
}

Status OutputDirectory::remove_temporary_files() { return directory_.remove_temporary_files(); }

Status OutputDirectory::finish() {
  MOE_ASSIGN_OR_RETURN(const WorkFiles files, directory_.files());
  for (const fs::path& file : files.own) {
    if (!file.filename().string().starts_with(kQualityStem)) continue;
    MOE_RETURN_IF_ERROR(remove_path(file));
  }
  if (kind_ == OutputKind::kModel) {
    std::error_code error;
    const fs::path headers = path() / kSavedHeadersDirectory;
    fs::remove_all(headers, error);
    if (error) {
      return make_error(StatusCode::kIo, Where{.file = headers.string()},
                        "cannot remove it: " + error.message());
    }
  }
  MOE_RETURN_IF_ERROR(directory_.remove_marker());
  active_ = false;
  return sync_directory(path());
}

}  // namespace moepack

#include "convert/cli/kept_inputs.h"

#include <algorithm>
#include <array>
#include <string>
#include <system_error>

#include "convert/cli/output.h"
#include "formats/base/work_directory.h"
#include "formats/calibration/calibration.h"
#include "formats/config/companion_files.h"
#include "formats/flashmoe/engine_files.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/prediction_manifest.h"
#include "formats/pack/resident_manifest.h"
#include "formats/pack/resident_overlay.h"

namespace moepack::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGgufExtension = ".gguf";
// A cache of the hub has its files in snapshots/REVISION, a model its packs one level down.
constexpr int kDeepestFiles = 2;

bool is_weights_name(const fs::path& name) {
  const std::string text = name.string();
  return name.extension() == ".safetensors" || name.extension() == kGgufExtension ||
         text.ends_with(".safetensors.index.json") || is_numbered_name(text, "layer_", ".bin") ||
         is_numbered_name(text, "layer_", ".bin.zst") ||
         is_numbered_name(text, "model_weights_", ".bin");
}

// By name, because results may stand in a model's directory, and be written anew there.
bool is_read_from_directory(const fs::path& path) {
  constexpr std::array<std::string_view, 15> kNames{kQuantizationName,
                                                    kPackManifestName,
                                                    kTieredManifestName,
                                                    kResidentManifestName,
                                                    kResidentDataName,
                                                    kPredictionManifestName,
                                                    kPredictionDataName,
                                                    kFlashMoeTokenizerName,
                                                    kFlashMoeVocabName,
                                                    kCalibrationManifestName,
                                                    "tokenizer.model",
                                                    "tiktoken.model",
                                                    "vocab.json",
                                                    "merges.txt",
                                                    "special_tokens_map.json"};
  const std::string name = path.filename().string();
  return is_companion(name) || is_weights_name(path.filename()) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         path.parent_path().filename() == kOverlayDirectory;
}

// Where the links at `path` end; empty where no regular file is there.
fs::path file_behind(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  fs::path real = fs::canonical(path, error);
  return error ? fs::path() : real;
}

bool is_in_directory(const fs::path& output, const fs::path& directory) {
  constexpr auto kHow = fs::directory_options::follow_directory_symlink |
                        fs::directory_options::skip_permission_denied;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, kHow, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at.depth() >= kDeepestFiles) at.disable_recursion_pending();
    if (is_read_from_directory(at->path()) && file_behind(at->path()) == output) return true;
  }
  return false;
}

// What the parts of one split GGUF file have in common; empty for any other file.
std::string split_stem(const fs::path& file) {
  constexpr std::string_view kEnd = "-00001-of-00002.gguf";
  const std::string path = file.string();
  if (path.size() <= kEnd.size() || !path.ends_with(kGgufExtension)) return {};
  const std::string end = path.substr(path.size() - kEnd.size());
  return end.find("-of-") == kEnd.find("-of-") ? path.substr(0, path.size() - kEnd.size()) : "";
}

bool belongs_to(const fs::path& output, const fs::path& input) {
  std::error_code error;
  if (fs::is_directory(input, error)) return is_in_directory(output, input);
  const fs::path file = file_behind(input);
  const std::string stem = split_stem(file);
  return !file.empty() && (file == output || (!stem.empty() && split_stem(output) == stem));
}

}  // namespace

Status check_keeps_inputs(std::string_view option, const fs::path& path,
                          std::span<const fs::path> inputs) {
  if (path.empty() || path == kStdoutName) return Status::ok();
  const fs::path output = file_behind(path);
  if (output.empty()) return Status::ok();
  const auto is_replaced = [&](const fs::path& input) {
    return !input.empty() && belongs_to(output, input);
  };
  if (std::none_of(inputs.begin(), inputs.end(), is_replaced)) return Status::ok();
  const std::string name = path.string();
  return make_error(StatusCode::kInvalidArgument, Where{.file = name},
                    "is read by this command, and " + std::string(option) + " would replace it",
                    "name another file");
}

Status check_named_output(std::string_view option, const fs::path& path,
                          std::span<const fs::path> inputs) {
  MOE_RETURN_IF_ERROR(check_keeps_inputs(option, path, inputs));
  return check_named_file(option, path);
}

bool is_same_place(const fs::path& one, const fs::path& other) {
  std::error_code error;
  const fs::path first = fs::weakly_canonical(fs::absolute(one, error), error);
  const fs::path second = fs::weakly_canonical(fs::absolute(other, error), error);
  return first == second;
}

}  // namespace moepack::cli

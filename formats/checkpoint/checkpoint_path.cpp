// Finding the checkpoint that a path stands for: plain directories and HuggingFace caches.
#include <algorithm>
#include <system_error>

#include "formats/base/paths.h"
#include "formats/checkpoint/checkpoint.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "models--";
constexpr std::uint64_t kMaxRefBytes = 4096;
constexpr std::size_t kMaxListed = 20;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Names of the directories in `path` that start with `prefix`, sorted; empty when it is unreadable.
std::vector<std::string> folders_in(const fs::path& path, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (name.compare(0, prefix.size(), prefix) == 0 && is_folder(at->path())) {
      names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool holds_gguf(const fs::path& path) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".gguf") return true;
  }
  return false;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  if (names.size() > kMaxListed) {
    text += ", and " + std::to_string(names.size() - kMaxListed) + " more";
  }
  return text;
}

Result<fs::path> resolve_ref(const fs::path& entry, const fs::path& ref) {
  MOE_ASSIGN_OR_RETURN(std::string revision, read_text_file(ref, kMaxRefBytes));
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r')) {
    revision.pop_back();
  }
  const std::string ref_name = ref.string();
  if (revision.empty() || revision == "." || revision == ".." ||
      revision.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    return corrupt({.file = ref_name},
                   "\"" + printable(revision, 64) + "\" is not the name of a snapshot",
                   "download the model again, or name a snapshot's directory");
  }
  fs::path snapshot = entry / "snapshots" / revision;
  if (!is_folder(snapshot)) {
    return not_found({.file = ref_name},
                     "names snapshot " + printable(revision) + ", which is not there",
                     "download the model again, or name a snapshot's directory");
  }
  return snapshot;
}

// `entry` holds a folder "snapshots".
Result<fs::path> resolve_cache_entry(const fs::path& entry) {
  const fs::path ref = entry / "refs" / "main";
  if (is_there(ref)) return resolve_ref(entry, ref);
  const fs::path snapshots = entry / "snapshots";
  const std::vector<std::string> names = folders_in(snapshots, "");
  const std::string name = entry.string();
  if (names.empty()) {
    return not_found({.file = name}, "the cache entry holds no snapshot",
                     "download the model again");
  }
  if (names.size() > 1) {
    return make_error(StatusCode::kInvalidArgument, {.file = name},
                      "the cache entry holds several snapshots and no refs/main: " + list_of(names),
                      "name one of them: " + printable((snapshots / names.front()).string(), 4096));
  }
  return snapshots / names.front();
}

}  // namespace

Result<fs::path> resolve_checkpoint_directory(const fs::path& path) {
  const std::string name = path.string();
  if (!is_there(path)) {
    MOE_RETURN_IF_ERROR(check_link(path, "check the path"));
    return not_found({.file = name}, "there is no such directory", "check the path");
  }
  if (!is_folder(path)) {
    return make_error(StatusCode::kInvalidArgument, {.file = name}, "is not a directory",
                      "name the directory that holds config.json");
  }
  if (is_there(path / "config.json")) return path;
  MOE_RETURN_IF_ERROR(
      check_link(path / "config.json", "the download was not finished; download the model again"));
  if (is_folder(path / "snapshots")) return resolve_cache_entry(path);

  for (const fs::path& root : {path, path / "hub"}) {
    const std::vector<std::string> models = folders_in(root, kModelPrefix);
    if (models.size() == 1) return resolve_cache_entry(root / models.front());
    if (models.size() > 1) {
      return make_error(StatusCode::kInvalidArgument, {.file = root.string()},
                        "the cache holds several models: " + list_of(models),
                        "name one of them: " + printable((root / models.front()).string(), 4096));
    }
  }
  if (holds_gguf(path)) {
    return not_found({.file = name}, "config.json is missing, and there are GGUF files",
                     "name one of the GGUF files");
  }
  return not_found({.file = name}, "config.json is missing",
                   "name a directory with config.json and safetensors, or a HuggingFace cache");
}

}  // namespace moepack

#include "convert/source/path_kind.h"

#include <system_error>

#include "formats/base/paths.h"
#include "formats/model_dir.h"
#include "formats/pack_directory.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGgufExtension = ".gguf";

bool has(const fs::path& directory, const char* name) {
  std::error_code ignored;
  return fs::exists(directory / name, ignored);
}

Status not_readable(const std::string& name, std::string_view what, std::string_view remedy) {
  return make_error(StatusCode::kInvalidArgument, Where{.file = name}, what, remedy);
}

}  // namespace

std::string_view path_kind_name(PathKind kind) {
  switch (kind) {
    case PathKind::kCheckpoint:
      return "checkpoint";
    case PathKind::kSafetensors:
      return "safetensors";
    case PathKind::kGguf:
      return "gguf";
    case PathKind::kModel:
      return "model";
    default:
      return "pack";
  }
}

bool has_gguf_name(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == kGgufExtension && fs::is_regular_file(path, ignored);
}

Result<PathKind> find_path_kind(const fs::path& path) {
  const std::string name = path.string();
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  MOE_RETURN_IF_ERROR(check_link(without_trailing_slash(path), "check where the link leads"));
  if (status.type() == fs::file_type::not_found) {
    return not_found(Where{.file = name}, "there is no such file or directory", "check the path");
  }
  if (status.type() == fs::file_type::regular) {
    const std::string extension = path.extension().string();
    if (extension == kGgufExtension) return PathKind::kGguf;
    if (extension == ".json" || extension == ".bin") {
      return not_readable(name, "is one file of a model", "name the directory that holds it");
    }
    return PathKind::kSafetensors;
  }
  if (status.type() != fs::file_type::directory) {
    return not_readable(name,
                        error ? "cannot be looked at: " + error.message()
                              : std::string("is neither a file nor a directory"),
                        "check the path and its permissions");
  }
  const bool is_unfinished = has(path, kUnfinishedMarker);
  if (is_unfinished && directory_name(path).starts_with(kDefaultPackName)) {
    return undescribed_pack_error(path);
  }
  if (has(path, kResidentManifestName) || is_unfinished) return PathKind::kModel;
  MOE_ASSIGN_OR_RETURN(const PackKind kind, detect_pack(path));
  if (kind == PackKind::kUndescribed) return undescribed_pack_error(path);
  if (kind != PackKind::kNone) return PathKind::kPack;
  MOE_ASSIGN_OR_RETURN(const auto packs, list_packs(path));
  return packs.empty() ? PathKind::kCheckpoint : PathKind::kModel;
}

Status check_pack_choice(const fs::path& path, PathKind kind, std::string_view pack) {
  if (pack.empty() || kind == PathKind::kModel) return Status::ok();
  return make_error(StatusCode::kInvalidArgument, Where{.file = path.string()},
                    "is no model directory, of which a pack could be chosen", "leave --pack out");
}

}  // namespace moepack

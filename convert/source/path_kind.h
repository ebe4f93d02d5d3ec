// What a path given to inspect, extract, index or verify holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

enum class PathKind : std::uint8_t {
  kCheckpoint,   // a directory of safetensors, or an entry of HuggingFace's cache
  kSafetensors,  // one safetensors file
  kGguf,         // one GGUF file, or a part of one
  kModel,        // a model directory, finished or not
  kPack,         // the directory of one expert pack
};

// "checkpoint", "safetensors", "gguf", "model", "pack".
std::string_view path_kind_name(PathKind kind);

// Looks at names only; whoever opens the path finds out whether its contents are sound.
// kNotFound: nothing there; kInvalidArgument: something else, with a hint where there is one.
Result<PathKind> find_path_kind(const std::filesystem::path& path);

// kInvalidArgument where `pack` names one of a model's packs and `path` holds no model.
Status check_pack_choice(const std::filesystem::path& path, PathKind kind, std::string_view pack);

// A file (links followed) whose name ends in .gguf.
bool has_gguf_name(const std::filesystem::path& path);

}  // namespace moepack

#include "formats/model_dir.h"

#include <algorithm>
#include <system_error>

#include "formats/base/paths.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/unfinished_work.h"

namespace moepack {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += printable(name);
  }
  return text;
}

// The error of a directory that is meant but not listed because it has no manifest or is an LZ4
// pack: `wanted` or the default; where nothing is listed (`any`), whatever holds layer files.
Status check_unlisted_packs(const std::filesystem::path& model, const std::string& wanted,
                            bool any) {
  std::vector<std::string> names{kDefaultPackName};
  if (!wanted.empty()) names = {std::string(kDefaultPackName) + "_" + wanted, wanted};
  std::error_code error;
  if (any && wanted.empty()) {
    MOE_ASSIGN_OR_RETURN(const auto entries, list_directory(model));
    for (const std::filesystem::path& entry : entries) {
      if (std::filesystem::is_directory(entry, error)) names.push_back(entry.filename().string());
    }
  }
  for (const std::string& name : names) {
    if (!std::filesystem::is_directory(model / name, error)) continue;
    const Result<PackKind> kind = detect_pack(model / name);
    if (!kind.is_ok() && name != wanted && !is_meant_as_pack(model / name)) continue;
    MOE_RETURN_IF_ERROR(check_is_listed(model / name));
  }
  return Status::ok();
}

}  // namespace

Status check_is_listed(const std::filesystem::path& pack) {
  MOE_ASSIGN_OR_RETURN(const PackKind kind, detect_pack(pack));
  if (kind == PackKind::kUndescribed || kind == PackKind::kUnfinished) {
    return undescribed_pack_error(pack);
  }
  return kind == PackKind::kLz4 ? read_pack_directory(pack, {}).status() : Status::ok();
}

Result<std::string> choose_pack(const std::filesystem::path& model, const std::string& wanted) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> packs, list_packs(model));
  const auto has = [&](const std::string& name) {
    return std::find(packs.begin(), packs.end(), name) != packs.end();
  };
  const std::string model_name = model.string();
  const Where where{.file = model_name};
  if (!has(wanted)) {
    MOE_RETURN_IF_ERROR(check_unlisted_packs(model, wanted, packs.empty()));
  }
  if (packs.empty()) {
    return not_found(where, "holds no expert pack (a folder with layout.json)",
                     "make one with moepack convert");
  }
  if (!wanted.empty()) {
    const std::string prefixed = std::string(kDefaultPackName) + "_" + wanted;
    if (has(prefixed)) return prefixed;
    if (has(wanted)) return wanted;
    return not_found(where, "has no pack called " + printable(wanted), "it has: " + join(packs));
  }
  if (has(kDefaultPackName)) return std::string(kDefaultPackName);
  if (packs.size() == 1) return packs[0];
  return make_error(StatusCode::kInvalidArgument, where, "has several packs",
                    "name one with --pack: " + join(packs));
}

Status check_pack_fits(const ModelConfig& config, const PackManifest& pack,
                       const std::filesystem::path& pack_path) {
  const std::string file = (pack_path / kPackManifestName).string();
  const auto check = [&](std::string_view what, std::uint64_t in_pack,
                         std::uint64_t in_config) -> Status {
    if (in_pack == in_config) return Status::ok();
    return corrupt(Where{.file = file},
                   std::string(what) + " is " + std::to_string(in_pack) + ", config.json says " +
                       std::to_string(in_config),
                   "this pack belongs to another model");
  };
  MOE_RETURN_IF_ERROR(check("num_layers", pack.num_layers, config.num_layers));
  MOE_RETURN_IF_ERROR(check("num_experts", pack.num_experts, config.num_experts));
  MOE_RETURN_IF_ERROR(check("hidden_size", pack.hidden_size, config.hidden_size));
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::uint64_t experts = has_experts(config.layers[layer]) ? config.num_experts : 0;
    MOE_RETURN_IF_ERROR(check("the number of experts of layer " + std::to_string(layer),
                              pack.experts_of(layer), experts));
  }
  return check("expert_width", pack.expert_width, config.expert_width);
}

Result<std::vector<std::string>> list_packs(const std::filesystem::path& model) {
  const auto entries = list_directory(model);
  if (!entries.is_ok()) {
    return not_found(Where{}, entries.status().message(),
                     "give a directory written by moepack convert");
  }
  std::vector<std::string> packs;
  for (const std::filesystem::path& entry : entries.value()) {
    if (!is_meant_as_pack(entry)) continue;
    // What cannot be read is listed: whoever opens the pack says what is wrong with it.
    const auto kind = detect_pack(entry);
    const bool is_pack =
        !kind.is_ok() || kind.value() == PackKind::kNative || kind.value() == PackKind::kFlashMoe;
    if (is_pack) packs.push_back(entry.filename().string());
  }
  return packs;
}

Status check_model_finished(const std::filesystem::path& model) {
  return is_there(model / kUnfinishedMarker) ? unfinished_work_error(model, StatusCode::kCorrupt)
                                             : Status::ok();
}

Result<ModelDir> open_model_dir(const std::filesystem::path& model, const std::string& pack_name,
                                std::span<const OverlayGroup> overlays,
                                std::span<const std::filesystem::path> further) {
  ModelDir dir;
  dir.path = model;
  MOE_RETURN_IF_ERROR(check_model_finished(model));
  MOE_ASSIGN_OR_RETURN(const std::string pack, choose_pack(model, pack_name));
  MOE_ASSIGN_OR_RETURN(ParsedConfig parsed, read_model_config(model / "config.json"));
  dir.config = std::move(parsed.model);
  MOE_ASSIGN_OR_RETURN(dir.residents, read_model_residents(model, dir.config));
  dir.pack_path = model / pack;
  MOE_ASSIGN_OR_RETURN(dir.pack,
                       read_pack_directory(dir.pack_path, pack_dimensions(dir.config), further));
  MOE_RETURN_IF_ERROR(check_pack_fits(dir.config, dir.pack, dir.pack_path));
  MOE_ASSIGN_OR_RETURN(dir.overlays, read_resident_overlays(model, dir.config, overlays));
  return dir;
}

}  // namespace moepack

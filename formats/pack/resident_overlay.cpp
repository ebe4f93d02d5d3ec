#include "formats/pack/resident_overlay.h"

#include <algorithm>
#include <set>
#include <system_error>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/weights/ggml_types.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxOverlayDimension = std::uint64_t{1} << 32;

constexpr std::array<std::string_view, 2> kVHeadNames{"grouped", "tiled"};

constexpr OverlayGroup kEmbedding = OverlayGroup::kEmbedding;
constexpr OverlayGroup kHead = OverlayGroup::kLmHead;
constexpr OverlayGroup kFull = OverlayGroup::kAttention;
constexpr OverlayGroup kLinear = OverlayGroup::kLinearAttention;
constexpr OverlayGroup kShared = OverlayGroup::kSharedExperts;
constexpr QFormatId kQ8 = QFormatId::kQ80;

constexpr std::array<OverlayRole, 15> kRoles{{
    {kEmbedding, "embedding", ModuleRole::kEmbedding, "embedding_q8_0", kQ8},
    {kHead, "lm_head", ModuleRole::kOutputHead, "lm_head_q6", QFormatId::kQ6K},
    {kFull, "q", ModuleRole::kQuery, "full_attn_q8_0", kQ8},
    {kFull, "k", ModuleRole::kKey, "full_attn_q8_0", kQ8},
    {kFull, "v", ModuleRole::kValue, "full_attn_q8_0", kQ8},
    {kFull, "o", ModuleRole::kAttentionOutput, "full_attn_q8_0", kQ8},
    {kLinear, "qkv", ModuleRole::kDeltaQkv, "attn_qkv_q8_0", kQ8},
    {kLinear, "gate", ModuleRole::kDeltaZ, "linear_q8_0", kQ8},
    {kLinear, "out", ModuleRole::kDeltaOut, "linear_q8_0", kQ8},
    {kLinear, "alpha", ModuleRole::kDeltaAlpha, "", kQ8},
    {kLinear, "beta", ModuleRole::kDeltaBeta, "", kQ8},
    {kShared, "gate", ModuleRole::kSharedGate, "shared_q8_0", kQ8},
    {kShared, "up", ModuleRole::kSharedUp, "shared_q8_0", kQ8},
    {kShared, "down", ModuleRole::kSharedDown, "shared_q8_0", kQ8},
    {kShared, "expert_gate", ModuleRole::kSharedExpertGate, "", kQ8},
}};

// The engines' file of which every entry is one role, which the entries do not state.
constexpr std::string_view kSingleRoleStem = "attn_qkv_q8_0";

// Where a stem's matrices may come from: the group's own file takes every role.
bool belongs_to(const OverlayRole& role, std::string_view stem) {
  return stem == overlay_group_name(role.group) || stem == role.engine_stem;
}

// One of them alone too: reading it says what is missing.
bool has_files(const fs::path& directory, const std::string& stem) {
  return is_there(directory / (stem + ".bin")) || is_there(directory / (stem + ".json"));
}

// ---- writing ----

std::string entry_line(const ResidentOverlay& overlay, const OverlayTensor& entry) {
  std::string text = "{";
  if (has_layers(overlay.group)) text += "\"layer\": " + std::to_string(entry.layer) + ", ";
  if (overlay.stem != kSingleRoleStem) text += "\"role\": " + json_quote(entry.role->role) + ", ";
  const ResidentTensor& t = entry.tensor;
  const auto type = ggml_type_of(t.format.id);
  text += "\"offset\": " + std::to_string(t.offsets.codes()) +
          ", \"size\": " + std::to_string(t.bytes.codes()) + ", \"shape\": [" +
          std::to_string(t.cols) + ", " + std::to_string(t.rows) +
          "], \"tensor_type\": " + json_quote(type.has_value() ? ggml_type_name(*type) : "");
  if (overlay.group == kLinear) {
    text += ", \"v_heads\": " + json_quote(kVHeadNames[static_cast<std::size_t>(entry.v_heads)]);
  }
  return text + "}";
}

// ---- reading ----

Result<const OverlayRole*> parse_role(const JsonFields& entry, std::string_view stem,
                                      const Architecture& architecture) {
  std::string name;
  if (stem != kSingleRoleStem) {
    MOE_ASSIGN_OR_RETURN(name, entry.string("role"));
  }
  for (const OverlayRole& role : kRoles) {
    const bool is_meant = belongs_to(role, stem) && (stem == kSingleRoleStem || role.role == name);
    if (is_meant && find_rule(architecture, role.module) != nullptr) return &role;
  }
  return entry.error("role", "\"" + printable(name, 64) + "\" is none of " + std::string(stem));
}

// "shape": [inputs, outputs], as ggml orders dimensions.
Status parse_matrix(const JsonFields& entry, ResidentTensor& tensor) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* shape, entry.array("shape"));
  const auto is_dimension = [](const nlohmann::json& n) {
    return n.is_number_unsigned() && n.get<std::uint64_t>() - 1 < kMaxOverlayDimension;
  };
  if (shape->size() != 2 || !is_dimension((*shape)[0]) || !is_dimension((*shape)[1])) {
    return entry.error("shape", "must hold two positive integers");
  }
  tensor.cols = (*shape)[0].get<std::uint64_t>();
  tensor.rows = (*shape)[1].get<std::uint64_t>();
  tensor.shape = {tensor.rows, tensor.cols};
  MOE_ASSIGN_OR_RETURN(const std::string type, entry.string("tensor_type"));
  const auto found = ggml_type_from_name(type);
  if (!found.has_value() || !found->format.has_value()) {
    return json_error(StatusCode::kUnsupported, entry.file(), entry.path_of("tensor_type"),
                      "\"" + printable(type, 32) + "\" is no type of weights known here",
                      "a newer moepack may read it");
  }
  tensor.format = {.id = *found->format};
  const auto bytes = matrix_bytes(tensor.format, tensor.rows, tensor.cols);
  if (!bytes.has_value() || bytes->codes() > kMaxDataBytes) {
    return entry.error("shape", "cannot be held in " + type);
  }
  tensor.bytes = *bytes;
  MOE_RETURN_IF_ERROR(entry.expect_number("size", bytes->codes(), "shape and tensor_type"));
  MOE_ASSIGN_OR_RETURN(tensor.offsets.codes(),
                       entry.number("offset", 0, kMaxDataBytes - bytes->codes()));
  return Status::ok();
}

Status parse_v_heads(const JsonFields& entry, OverlayTensor& out) {
  if (!entry.has("v_heads")) return Status::ok();  // the engines' own: grouped
  MOE_ASSIGN_OR_RETURN(const std::string text, entry.string("v_heads"));
  const auto it = std::find(kVHeadNames.begin(), kVHeadNames.end(), text);
  if (it == kVHeadNames.end()) return entry.error("v_heads", "must be grouped or tiled");
  out.v_heads = static_cast<ResidentConventions::VHeads>(it - kVHeadNames.begin());
  return Status::ok();
}

Result<OverlayTensor> parse_entry(const JsonFields& entry, std::string_view stem,
                                  const Architecture& architecture, std::uint32_t num_layers) {
  OverlayTensor out;
  MOE_ASSIGN_OR_RETURN(out.role, parse_role(entry, stem, architecture));
  if (has_layers(out.role->group)) {
    MOE_ASSIGN_OR_RETURN(out.layer, entry.number32("layer", 0, num_layers - 1));
  }
  out.tensor.name = overlay_module(architecture, *out.role, out.layer);
  MOE_RETURN_IF_ERROR(parse_matrix(entry, out.tensor));
  MOE_RETURN_IF_ERROR(parse_v_heads(entry, out));
  return out;
}

// Sorts by offset; each matrix once, no byte twice. In our own files each begins at the next
// multiple of 64 behind the one before, and the last ends the file.
Status check_entries(const JsonFields& root, ResidentOverlay& overlay) {
  std::sort(overlay.tensors.begin(), overlay.tensors.end(),
            [](const OverlayTensor& a, const OverlayTensor& b) {
              return a.tensor.offsets.codes() < b.tensor.offsets.codes();
            });
  std::set<std::string_view> names;
  std::uint64_t end = 0;
  for (const OverlayTensor& entry : overlay.tensors) {
    const ResidentTensor& t = entry.tensor;
    const std::string what = t.name + " at offset " + std::to_string(t.offsets.codes());
    if (!names.insert(t.name).second) return root.error("entries", what + " stands here twice");
    if (t.offsets.codes() < end) {
      return root.error("entries", what + " overlaps the matrix before it, which ends at byte " +
                                       std::to_string(end));
    }
    if (overlay.has_checksum && t.offsets.codes() != align_up(end, kResidentAlignment)) {
      return root.error("entries", what + " leaves a gap to the matrix before it, which ends at " +
                                       "byte " + std::to_string(end));
    }
    end = t.offsets.codes() + t.bytes.codes();
  }
  if (!overlay.has_checksum || end == overlay.data_size) return Status::ok();
  return root.error("data_size", "is " + std::to_string(overlay.data_size) +
                                     ", but the last matrix ends at byte " + std::to_string(end));
}

// What moepack writes beside the engines' keys.
Status parse_own_members(const JsonFields& root, ResidentOverlay& overlay) {
  const bool is_engines = !overlay_group_from_name(overlay.stem).has_value();
  overlay.has_checksum = root.has("format_version") || !is_engines;
  if (!overlay.has_checksum) return Status::ok();
  MOE_RETURN_IF_ERROR(root.expect_version(kOverlayFormatVersion, "use the moepack that wrote it"));
  MOE_ASSIGN_OR_RETURN(const JsonFields source, root.object("source"));
  MOE_ASSIGN_OR_RETURN(overlay.source.name, source.string("name"));
  MOE_ASSIGN_OR_RETURN(overlay.source.fingerprint, source.checksum("fingerprint"));
  MOE_ASSIGN_OR_RETURN(overlay.data_size, root.number("data_size", 1, kMaxDataBytes));
  MOE_ASSIGN_OR_RETURN(overlay.checksum, root.checksum("checksum"));
  return Status::ok();
}

// The engines read embedding and head from the .bin alone.
Result<ResidentOverlay> bare_overlay(const OverlayRole& role, const ModelConfig& config,
                                     const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(config));
  ResidentOverlay overlay;
  overlay.stem = role.engine_stem;
  overlay.group = role.group;
  overlay.has_checksum = false;
  OverlayTensor entry{.role = &role, .layer = 0, .tensor = {}};
  ResidentTensor& t = entry.tensor;
  t.name = overlay_module(*architecture, role, 0);
  t.format = {.id = role.engine_format};
  t.shape = {config.vocab_size, config.hidden_size};
  t.rows = config.vocab_size;
  t.cols = config.hidden_size;
  const auto bytes = matrix_bytes(t.format, t.rows, t.cols);
  if (!bytes.has_value()) {
    return corrupt(Where{.file = file},
                   "cannot belong to this model: " + std::to_string(config.hidden_size) +
                       " inputs are no whole blocks of " +
                       std::string(qformat_info(t.format.id).name));
  }
  t.bytes = *bytes;
  overlay.data_size = bytes->codes();
  overlay.tensors.push_back(std::move(entry));
  return overlay;
}

// The manifest of an existing .bin.
Result<ResidentOverlay> read_manifest(const fs::path& directory, const std::string& stem,
                                      const ModelConfig& config) {
  const fs::path path = directory / (stem + ".json");
  std::string text;
  bool is_known = false;
  if (is_there(path)) {
    MOE_ASSIGN_OR_RETURN(text, read_text_file(path, kMaxSmallManifestBytes));
    is_known = text.find("\"format_version\"") != std::string::npos;
  }
  for (const OverlayRole& role : kRoles) {
    if (is_known || has_layers(role.group) || role.engine_stem != stem) continue;
    return bare_overlay(role, config, (directory / (stem + ".bin")).string());
  }
  if (text.empty()) {
    return not_found(Where{.file = path.string()}, "is missing beside " + stem + ".bin",
                     "make the overlay again with moepack overlay");
  }
  MOE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(config));
  return parse_resident_overlay(text, path.string(), stem, *architecture, config.num_layers);
}

}  // namespace

std::string_view overlay_group_name(OverlayGroup group) {
  constexpr std::array<std::string_view, kOverlayGroups.size()> kNames{
      "embedding", "lm_head", "attention", "linear_attention", "shared_experts"};
  return kNames[static_cast<std::size_t>(group)];
}

std::optional<OverlayGroup> overlay_group_from_name(std::string_view name) {
  for (OverlayGroup group : kOverlayGroups) {
    if (overlay_group_name(group) == name) return group;
  }
  return std::nullopt;
}

std::span<const OverlayRole> overlay_roles() { return kRoles; }

std::string overlay_module(const Architecture& architecture, const OverlayRole& role,
                           std::uint32_t layer) {
  return resident_module(*find_rule(architecture, role.module), layer);
}

std::string_view overlay_stem(const OverlayRole& role, const WeightFormat& format) {
  const bool is_engines = !role.engine_stem.empty() && format.id == role.engine_format;
  return is_engines ? role.engine_stem : overlay_group_name(role.group);
}

std::string resident_overlay_text(const ResidentOverlay& overlay) {
  std::string text = "{\n  \"format_version\": " + std::to_string(kOverlayFormatVersion) +
                     ",\n  \"source\": {\"name\": " + json_quote(overlay.source.name) +
                     ", \"fingerprint\": " + json_quote(checksum_text(overlay.source.fingerprint)) +
                     "},\n  \"data_size\": " + std::to_string(overlay.data_size) +
                     ",\n  \"checksum\": " + json_quote(checksum_text(overlay.checksum)) +
                     ",\n  \"entries\": [";
  std::string_view separator = "\n    ";
  for (const OverlayTensor& entry : overlay.tensors) {
    text += separator;
    text += entry_line(overlay, entry);
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

Result<ResidentOverlay> parse_resident_overlay(std::string_view text, const std::string& file,
                                               std::string_view stem,
                                               const Architecture& architecture,
                                               std::uint32_t num_layers) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  ResidentOverlay overlay;
  overlay.stem = stem;
  MOE_RETURN_IF_ERROR(parse_own_members(root, overlay));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, root.array("entries"));
  if (list->empty()) return root.error("entries", "must hold a matrix");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string path = root.path_of("entries") + "[" + std::to_string(i) + "]";
    MOE_ASSIGN_OR_RETURN(const JsonFields entry, JsonFields::of((*list)[i], file, path));
    MOE_ASSIGN_OR_RETURN(OverlayTensor tensor, parse_entry(entry, stem, architecture, num_layers));
    overlay.group = tensor.role->group;
    overlay.tensors.push_back(std::move(tensor));
  }
  MOE_RETURN_IF_ERROR(check_entries(root, overlay));
  return overlay;
}

std::vector<std::string> overlay_stems(OverlayGroup group) {
  std::vector<std::string> stems;
  for (const OverlayRole& role : kRoles) {
    if (role.group != group || role.engine_stem.empty()) continue;
    if (std::find(stems.begin(), stems.end(), role.engine_stem) == stems.end()) {
      stems.emplace_back(role.engine_stem);
    }
  }
  stems.emplace_back(overlay_group_name(group));
  return stems;
}

Result<ResidentOverlay> read_resident_overlay(const fs::path& model, const std::string& stem,
                                              const ModelConfig& config) {
  const fs::path directory = model / kOverlayDirectory;
  MOE_ASSIGN_OR_RETURN(ResidentOverlay overlay, read_manifest(directory, stem, config));
  const std::string data = (directory / overlay.data_name()).string();
  if (!is_there(data)) {
    return not_found(Where{.file = data}, "is missing beside " + overlay.manifest_name(),
                     "make the overlay again with moepack overlay, or remove that file");
  }
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / overlay.data_name()));
  if (!overlay.has_checksum && has_layers(overlay.group)) overlay.data_size = file.size();
  const auto wrong_size = [&](const std::string& expected) {
    return corrupt(Where{.file = file.path()},
                   "is " + std::to_string(file.size()) + " bytes long, " + expected,
                   "make the overlay again with moepack overlay");
  };
  if (file.size() != overlay.data_size) {
    const std::string who = overlay.has_checksum ? overlay.manifest_name() : "config.json";
    return wrong_size(who + " gives " + std::to_string(overlay.data_size));
  }
  for (const OverlayTensor& entry : overlay.tensors) {
    const ResidentTensor& t = entry.tensor;
    if (t.bytes.codes() <= file.size() && t.offsets.codes() <= file.size() - t.bytes.codes())
      continue;
    return wrong_size("but " + t.name + " ends at byte " +
                      std::to_string(t.offsets.codes() + t.bytes.codes()));
  }
  return overlay;
}

Result<std::vector<ResidentOverlay>> read_resident_overlays(const fs::path& model,
                                                            const ModelConfig& config,
                                                            std::span<const OverlayGroup> groups) {
  const fs::path directory = model / kOverlayDirectory;
  std::vector<ResidentOverlay> overlays;
  for (OverlayGroup group : groups) {
    const std::size_t before = overlays.size();
    std::set<std::string> names;
    for (const std::string& stem : overlay_stems(group)) {
      if (!has_files(directory, stem)) continue;
      MOE_ASSIGN_OR_RETURN(ResidentOverlay overlay, read_resident_overlay(model, stem, config));
      for (const OverlayTensor& entry : overlay.tensors) {
        if (names.insert(entry.tensor.name).second) continue;
        const std::string path = (directory / overlay.manifest_name()).string();
        return corrupt(
            Where{.file = path, .tensor = entry.tensor.name},
            "is in another overlay file of " + std::string(overlay_group_name(group)) + " too",
            "remove one of them");
      }
      overlays.push_back(std::move(overlay));
    }
    if (overlays.size() > before) continue;
    std::string there;
    for (OverlayGroup other : list_overlay_groups(model)) {
      there += (there.empty() ? "it has: " : ", ") + std::string(overlay_group_name(other));
    }
    const std::string path = directory.string();
    const std::string what = "has no overlay " + std::string(overlay_group_name(group));
    if (is_there(directory / kOverlayComplete) || is_there(directory / kOverlayMoving)) {
      return not_found(Where{.file = path}, what + ", but files of an interrupted moepack overlay",
                       "give the same command again to put them in place");
    }
    return not_found(Where{.file = path}, what,
                     there.empty() ? "make one with moepack overlay" : there);
  }
  return overlays;
}

std::vector<OverlayGroup> list_overlay_groups(const fs::path& model) {
  std::vector<OverlayGroup> groups;
  for (OverlayGroup group : kOverlayGroups) {
    const std::vector<std::string> stems = overlay_stems(group);
    const bool any = std::any_of(stems.begin(), stems.end(), [&](const std::string& stem) {
      return has_files(model / kOverlayDirectory, stem);
    });
    if (any) groups.push_back(group);
  }
  return groups;
}

}  // namespace moepack

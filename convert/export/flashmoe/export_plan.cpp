#include "convert/export/flashmoe/export_plan.h"

#include <algorithm>
#include <map>
#include <optional>

#include "convert/pack/engine_config.h"
#include "formats/base/bytes.h"
#include "formats/base/json_fields.h"
#include "formats/config/architecture.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

constexpr WeightFormat kEngineMatrix{
    .id = QFormatId::kQ4, .group_size = 64, .scale_type = DType::kBf16};

// What the module called `name` is for; nullopt when the architecture has none of that name.
std::optional<ModuleRole> role_of(const Architecture& architecture, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  const bool in_layer = name.starts_with(kLayers);
  if (in_layer) {
    const std::size_t dot = name.find('.', kLayers.size());
    name = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  }
  for (const ResidentRule& rule : architecture.residents) {
    if ((rule.scope != LayerScope::kModel) == in_layer && rule.name == name) return rule.role;
  }
  return std::nullopt;
}

Status refuse(const ModelDir& model, const ResidentTensor& tensor, std::string_view what) {
  const std::string file = (model.path / kResidentManifestName).string();
  return unsupported(Where{.file = file, .tensor = tensor.name}, what,
                     "the flash-moe engines cannot run this model");
}

// A matrix; the engines decode nothing but kEngineMatrix.
Status plan_matrix(const ModelDir& model, ExportTensor& tensor) {
  const ResidentTensor& source = *tensor.source;
  tensor.shape = source.shape;
  tensor.format = kEngineMatrix;
  tensor.change = source.format == kEngineMatrix ? ExportChange::kNone : ExportChange::kRound;
  const auto bytes = matrix_bytes(kEngineMatrix, source.rows, source.cols);
  if (!bytes.has_value()) {
    return refuse(
        model, source,
        "has " + std::to_string(source.cols) + " inputs, no whole number of groups of 64");
  }
  tensor.bytes = *bytes;
  return Status::ok();
}

// Everything that is no matrix: norms, conv1d, A_log, dt_bias.
Status plan_vector(const ModelDir& model, std::optional<ModuleRole> role, ExportTensor& tensor) {
  const ResidentTensor& source = *tensor.source;
  const ResidentConventions& how = model.residents.conventions;
  // The norm inside GatedDeltaNet is the factor itself in every convention.
  const bool follows = role.has_value() && follows_norm_convention(*role);
  const bool is_norm = (follows || role == ModuleRole::kDeltaNorm) && source.shape.size() == 1;
  const bool is_conv = role == ModuleRole::kDeltaConv && source.shape.size() >= 2;
  const bool is_a_log = role == ModuleRole::kDeltaALog && source.shape.size() == 1;
  const bool is_known = is_conv || is_norm || is_a_log || role == ModuleRole::kDeltaDtBias;
  if (!is_known || is_affine(source.format)) {
    return refuse(model, source,
                  "is a tensor of shape " + shape_text(source.shape) + " in " +
                      to_string(source.format) + " that the engines do not have");
  }
  tensor.shape = source.shape;
  if (is_conv) {
    tensor.shape = {source.shape[0], source.rows * source.cols / source.shape[0], 1};
  }
  tensor.format = {.id = is_a_log ? QFormatId::kF32 : QFormatId::kBf16};
  const bool is_same = source.format == tensor.format;
  tensor.change = is_a_log ? ExportChange::kWiden : ExportChange::kNarrow;
  if (is_same) tensor.change = ExportChange::kNone;
  if (follows && how.norm == ResidentConventions::Norm::kOnePlus) {
    tensor.change = ExportChange::kNormPlusOne;
  }
  if (is_a_log && how.a_log == ResidentConventions::ALog::kNegExp) {
    tensor.undo_neg_exp = true;
    tensor.change = ExportChange::kWiden;
  }
  tensor.bytes.codes() =
      source.rows * source.cols * qformat_info(tensor.format.id).bits / 8;  // fits: as the source's
  return Status::ok();
}

Status plan_tensors(const ModelDir& model, const Architecture& architecture, ExportPlan& plan) {
  const ResidentTensor* embedding = nullptr;
  bool has_head = false;
  for (const ResidentTensor& source : model.residents.tensors) {
    ExportTensor tensor{.source = &source, .name = source.name};
    const std::optional<ModuleRole> role = role_of(architecture, source.name);
    const bool is_matrix = source.shape.size() == 2 && role != ModuleRole::kDeltaConv;
    MOE_RETURN_IF_ERROR(is_matrix ? plan_matrix(model, tensor) : plan_vector(model, role, tensor));
    if (role == ModuleRole::kEmbedding) embedding = &source;
    has_head = has_head || role == ModuleRole::kOutputHead;
    plan.tensors.push_back(std::move(tensor));
  }
  if (!has_head && model.config.tie_word_embeddings && embedding != nullptr) {
    const ResidentRule* rule = find_rule(architecture, ModuleRole::kOutputHead);
    ExportTensor head{.source = embedding, .name = std::string(rule->name)};
    MOE_RETURN_IF_ERROR(plan_matrix(model, head));
    plan.tensors.push_back(std::move(head));
  }
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const ExportTensor& a, const ExportTensor& b) { return a.name < b.name; });
  return Status::ok();
}

// A component of a tensor, with an entry of its own in the manifest.
struct Section {
  std::uint64_t* offset;
  std::uint64_t size;
  DType dtype;
  std::vector<std::uint64_t> shape;
};

// By name, which is the order in the file.
std::map<std::string, Section> sections_of(ExportPlan& plan) {
  std::map<std::string, Section> sections;
  for (ExportTensor& t : plan.tensors) {
    for (Component c : stored_components(t.format)) {
      std::string name = t.name;
      if (t.source->has_weight_suffix) name += component_suffix(c);
      sections[name] = {&t.offsets[c], t.bytes[c], component_dtype(t.format, c),
                        component_shape(t.format, c, t.shape)};
    }
  }
  return sections;
}

std::string chunk_name(SplitNames names, std::size_t index, std::size_t count) {
  if (count == 1 || (index == 0 && names == SplitNames::kWriter)) return kResidentDataName;
  return "model_weights_" + std::to_string(index) + ".bin";
}

// Gives every component its place and cuts the files between components.
Status place(std::map<std::string, Section>& components, std::uint64_t split_bytes,
             SplitNames names, ExportPlan& plan) {
  // Padding is part of the file before it, since the loader finds the second file's tensors by the
  // first one's size; it never exceeds a limit that is itself a multiple of it.
  const std::uint64_t limit = split_bytes / kResidentAlignment * kResidentAlignment;
  std::uint64_t at = 0;
  plan.chunks.push_back({});
  for (auto& [name, component] : components) {
    at = align_up(at, kResidentAlignment);
    if (split_bytes != 0 && component.size > limit) {
      return invalid_argument("tensor " + printable(name) + " has " +
                                  std::to_string(component.size) + " bytes, more than a file of " +
                                  std::to_string(split_bytes) + " holds",
                              "raise --split");
    }
    if (split_bytes != 0 && at + component.size - plan.chunks.back().begin > limit) {
      plan.chunks.back().size = at - plan.chunks.back().begin;
      plan.chunks.push_back({.file = {}, .begin = at, .size = 0});
    }
    *component.offset = at;
    at += component.size;
  }
  plan.chunks.back().size = at - plan.chunks.back().begin;
  plan.data_size = at;
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    plan.chunks[i].file = chunk_name(names, i, plan.chunks.size());
  }
  if (names == SplitNames::kWriter || plan.chunks.size() <= 2) return Status::ok();
  return invalid_argument("the weights would take " + std::to_string(plan.chunks.size()) +
                              " files, the engine's loader opens two",
                          "raise --split or use --split-names writer");
}

std::string manifest_text(const ModelDir& model, const std::map<std::string, Section>& components,
                          const ExportPlan& plan) {
  std::string text = "{\n  \"model\": " + json_quote(model.residents.model) + ",\n";
  text += "  \"num_tensors\": " + std::to_string(components.size()) + ",\n  \"tensors\": {";
  std::string_view separator = "\n    ";
  for (const auto& [name, component] : components) {
    text += separator;
    text += json_quote(name) + ": {\"offset\": " + std::to_string(*component.offset) +
            ", \"size\": " + std::to_string(component.size) +
            ", \"shape\": " + shape_text(component.shape) +
            ", \"dtype\": " + json_quote(dtype_name(component.dtype)) + "}";
    separator = ",\n    ";
  }
  text += "\n  },\n  \"config\": " + engine_config_json(model.config);
  if (plan.chunks.size() > 1) {
    std::string files;
    std::string offsets;
    for (const ExportChunk& chunk : plan.chunks) {
      files += (files.empty() ? "" : ", ") + json_quote(chunk.file);
      offsets += (offsets.empty() ? "" : ", ") + std::to_string(chunk.begin);
    }
    text += ",\n  \"split\": {\"num_chunks\": " + std::to_string(plan.chunks.size()) +
            ", \"chunk_files\": [" + files + "], \"split_offsets\": [" + offsets + "]}";
  }
  return text + "\n}\n";
}

// Grouped and tiled heads are the same where every key head serves one value head.
Status check_v_heads(const ModelDir& model) {
  if (model.residents.conventions.v_heads == ResidentConventions::VHeads::kGrouped ||
      model.config.linear_value_heads == model.config.linear_key_heads) {
    return Status::ok();
  }
  const std::string file = (model.path / kResidentManifestName).string();
  return unsupported(Where{.file = file}, "V heads are tiled, the flash-moe engines group them",
                     "export a model converted from safetensors");
}

}  // namespace

Status check_engines_compute(const ModelDir& model) {
  MOE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(model.config));
  if (architecture->runs_in_flashmoe) return Status::ok();
  const std::string file = (model.path / "config.json").string();
  return unsupported(Where{.file = file}, "model type " + model.config.model_type +
                                              " is not computed by the flash-moe engines");
}

Result<ExportPlan> plan_export(const ModelDir& model, std::uint64_t split_bytes, SplitNames names) {
  ExportPlan plan;
  MOE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(model.config));
  MOE_RETURN_IF_ERROR(check_v_heads(model));
  MOE_RETURN_IF_ERROR(plan_tensors(model, *architecture, plan));
  std::map<std::string, Section> sections = sections_of(plan);
  MOE_RETURN_IF_ERROR(place(sections, split_bytes, names, plan));
  plan.num_components = static_cast<std::uint32_t>(sections.size());
  plan.manifest = manifest_text(model, sections, plan);
  return plan;
}

}  // namespace moepack

#include "convert/pack/header_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "convert/pack/layout_table.h"
#include "convert/pack/promised_form.h"
#include "convert/pack/target_format.h"
#include "convert/source/source_encoding.h"
#include "convert/source/source_naming.h"
#include "convert/source/tensor_names.h"
#include "formats/base/paths.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/shard_index.h"
#include "formats/config/architecture.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Which tensors of a module the index names.
struct Parts : NamedComponents {
  std::string module;  // canonical
};

// Parts of the experts' matrices of a layer, over all experts, and which experts have codes.
struct LayerParts {
  std::array<Parts, kProjections> parts;
  std::array<std::vector<bool>, kProjections> experts;
};

class HeaderReader {
 public:
  HeaderReader(fs::path directory, ParsedConfig config, const Architecture& names,
               const ConvertOptions& options)
      : directory_(std::move(directory)),
        index_file_((directory_ / kShardIndexName).string()),
        parsed_(std::move(config)),
        names_(names),
        naming_(directory_.string(), false, names),
        options_(options) {}

  Result<HeaderPlan> plan(const ShardIndex& index) {
    const ModelConfig& config = parsed_.model;
    MOE_RETURN_IF_ERROR(check_expert_count(config, naming_));
    layers_.resize(config.num_layers);
    for (LayerParts& layer : layers_) {
      for (auto& experts : layer.experts) experts.resize(config.num_experts);
    }
    for (const ShardIndex::Entry& entry : index.entries) MOE_RETURN_IF_ERROR(add(entry.tensor));
    HeaderPlan plan;
    plan.config = config;
    plan.residents.model = plan.pack.source.name = directory_name(directory_);
    MOE_RETURN_IF_ERROR(plan_residents(plan.residents));
    MOE_RETURN_IF_ERROR(plan_experts(plan.pack));
    plan.notes.emplace_back(
        "the weights are not here: sizes follow from config.json and the names "
        "in the index, and floats are taken for bf16");
    return plan;
  }

 private:
  Where where(const std::string& tensor) const { return {.file = index_file_, .tensor = tensor}; }

  Status add(const std::string& tensor) {
    TensorName name = classify_tensor(names_, tensor, parsed_.model);
    const bool is_packed = tensor.ends_with(".weight_packed");
    switch (name.role) {
      case TensorRole::kResident:
        return add_resident(name, tensor, is_packed);
      case TensorRole::kFused:
        for (const TensorName& part : split_fused(names_, name)) {
          MOE_RETURN_IF_ERROR(add_resident(part, tensor, is_packed));
        }
        return Status::ok();
      case TensorRole::kExpert:
        return add_expert(name, tensor, is_packed);
      case TensorRole::kSkipped:
      case TensorRole::kPredicts:
      case TensorRole::kUnused:
        return Status::ok();
      default:
        return unsupported(
            where(tensor),
            "is not a tensor of model type " + parsed_.model.model_type + " that is known here",
            "leaving it out could change the model's answers");
    }
  }

  Status check_layer(std::uint32_t layer, const std::string& tensor) const {
    if (layer < parsed_.model.num_layers) return Status::ok();
    return corrupt(where(tensor), "is of layer " + std::to_string(layer) +
                                      ", but config.json gives " +
                                      std::to_string(parsed_.model.num_layers) + " layers");
  }

  Status add_resident(const TensorName& name, const std::string& tensor, bool is_packed) {
    if (name.rule->scope != LayerScope::kModel) {
      MOE_RETURN_IF_ERROR(check_layer(name.layer, tensor));
    }
    Parts& parts = residents_[name.module];
    parts.module = name.module;
    parts.has[name.part] = true;
    parts.is_packed = parts.is_packed || is_packed;
    return Status::ok();
  }

  Status add_expert(const TensorName& name, const std::string& tensor, bool is_packed) {
    MOE_RETURN_IF_ERROR(check_layer(name.layer, tensor));
    const std::uint32_t count = parsed_.model.num_experts;
    if (name.expert.has_value() && *name.expert >= count) {
      return corrupt(where(tensor), "is of expert " + std::to_string(*name.expert) +
                                        ", but config.json gives " + std::to_string(count));
    }
    LayerParts& layer = layers_[name.layer];
    for (const Projection p : kAllProjections) {
      if (!holds(name.matrix, p)) continue;
      Parts& parts = layer.parts[static_cast<std::size_t>(p)];
      if (parts.module.empty()) parts.module = name.module;
      parts.has[name.part] = true;
      parts.is_packed = parts.is_packed || is_packed;
      if (name.part != Component::kCodes) continue;
      std::vector<bool>& experts = layer.experts[static_cast<std::size_t>(p)];
      if (name.expert.has_value()) {
        experts[*name.expert] = true;
      } else {
        experts.assign(count, true);
      }
    }
    return Status::ok();
  }

  static bool holds(ExpertMatrix matrix, Projection p) {
    switch (matrix) {
      case ExpertMatrix::kGate:
        return p == Projection::kGate;
      case ExpertMatrix::kUp:
        return p == Projection::kUp;
      case ExpertMatrix::kDown:
        return p == Projection::kDown;
      default:
        return p != Projection::kDown;
    }
  }

  // MLX's overrides stand under the source's names.
  std::optional<WeightFormat> declared_format(const std::string& module) const {
    if (!parsed_.quantization.has_value()) return std::nullopt;
    for (const QuantizationConfig::Entry& entry : parsed_.quantization->overrides) {
      if (canonical_name(names_, entry.module).value_or(entry.module) == module) {
        return entry.format;
      }
    }
    return parsed_.quantization->default_format;
  }

  // `has_target`: the user says in what format it is stored, whatever it is in the source. The
  // module's matrix is [rows, cols].
  Result<SourceForm> form_of(const Parts& parts, bool has_target, std::uint64_t rows,
                             std::uint64_t cols) const {
    const WeightFormat floats{.id = QFormatId::kBf16};
    if (!parts.has[Component::kScales]) return SourceForm{.format = floats};
    const auto declared = declared_format(parts.module);
    if (parts.has[Component::kBiases] || parsed_.quantization.has_value()) {
      const bool agrees =
          declared.has_value() && is_affine(*declared) == parts.has[Component::kBiases];
      if (!agrees) {
        return corrupt(where(parts.module),
                       "has scales, but config.json does not say that it is quantized so");
      }
      if (is_affine(*declared)) return SourceForm{.format = *declared};
      return form_where_it_fits(*declared, rows, cols);
    }
    const auto promised = promised_form(parts, parsed_.source_quantization, rows, cols);
    if (promised.has_value()) return *promised;
    if (has_target) return SourceForm{.format = floats, .is_decoded = true};
    return unsupported(where(parts.module),
                       "is packed in codes whose width the index does not tell",
                       "give --expert-format and --resident, or download the shards");
  }

  Status plan_residents(ResidentManifest& manifest) const {
    for (const ResidentRule& rule : names_.residents) {
      if (rule.role == ModuleRole::kOutputHead && parsed_.model.tie_word_embeddings) continue;
      if (rule.scope == LayerScope::kModel) {
        if (!exists_in(rule, parsed_.model, 0)) continue;
        MOE_RETURN_IF_ERROR(plan_resident(rule, 0, manifest));
        continue;
      }
      for (std::uint32_t layer = 0; layer < parsed_.model.num_layers; ++layer) {
        if (!applies_to_layer(rule, parsed_.model, layer)) continue;
        if (!exists_in(rule, parsed_.model, layer)) continue;
        MOE_RETURN_IF_ERROR(plan_resident(rule, layer, manifest));
      }
    }
    std::sort(manifest.tensors.begin(), manifest.tensors.end(),
              [](const ResidentTensor& a, const ResidentTensor& b) { return a.name < b.name; });
    return Status::ok();
  }

  Status plan_resident(const ResidentRule& rule, std::uint32_t layer,
                       ResidentManifest& manifest) const {
    const std::string module = resident_module(rule, layer);
    const auto found = residents_.find(module);
    if (found == residents_.end() || !found->second.has.codes()) {
      return not_found(where(naming_.resident(rule, layer)), "is missing in the index",
                       "download the index again");
    }
    const std::vector<std::uint64_t> shape = module_shape(rule, parsed_.model, layer);
    MOE_ASSIGN_OR_RETURN(const SourceForm form,
                         form_of(found->second, options_.resident_format.has_value(),
                                 shape.size() == 2 ? shape.front() : 1, shape.back()));
    ResidentTensor tensor{.name = module,
                          .has_weight_suffix = rule.has_weight_suffix,
                          .format = resident_target(rule, form, options_),
                          .shape = shape,
                          .bytes = {}};
    if (append_resident(tensor, manifest)) return Status::ok();
    tensor.format = form.format;
    if (append_resident(tensor, manifest)) return Status::ok();
    return corrupt(where(module), "has a shape that " + to_string(form.format) + " cannot hold");
  }

  Status check_complete(std::uint32_t layer) const {
    for (const Projection p : kAllProjections) {
      const std::vector<bool>& experts = layers_[layer].experts[static_cast<std::size_t>(p)];
      const auto missing = std::find(experts.begin(), experts.end(), false);
      if (missing == experts.end()) continue;
      const auto expert = static_cast<std::uint32_t>(missing - experts.begin());
      return not_found(where(naming_.expert(layer, expert, p)), "is missing in the index",
                       "download the index again");
    }
    return Status::ok();
  }

  Result<ExpertLayout> layout_of(std::uint32_t layer) const {
    std::array<WeightFormat, kProjections> formats;
    const ModelConfig& config = parsed_.model;
    for (const Projection p : kAllProjections) {
      const Parts& parts = layers_[layer].parts[static_cast<std::size_t>(p)];
      const bool is_down = p == Projection::kDown;
      MOE_ASSIGN_OR_RETURN(const SourceForm form,
                           form_of(parts, options_.expert_format.has_value(),
                                   is_down ? config.hidden_size : config.expert_width,
                                   is_down ? config.expert_width : config.hidden_size));
      formats[static_cast<std::size_t>(p)] = expert_target(form, options_);
    }
    const auto layout = make_expert_layout(config.hidden_size, config.expert_width, formats);
    if (layout.has_value()) return *layout;
    return make_error(StatusCode::kInvalidArgument, where(layers_[layer].parts[0].module),
                      "its inputs are no whole number of " + to_string(formats[0]) + " groups",
                      "group sizes that fit all experts: " + fitting_groups(config));
  }

  Status plan_experts(PackManifest& pack) const {
    const ModelConfig& config = parsed_.model;
    set_dimensions(config, options_.page_size, pack);
    const auto layout = [this](std::uint32_t l, std::uint32_t e) -> Result<ExpertLayout> {
      if (e == 0) MOE_RETURN_IF_ERROR(check_complete(l));
      return layout_of(l);
    };
    return plan_pack_layers(pack, config, layout).status();
  }

  fs::path directory_;
  std::string index_file_;  // in it, as messages name it
  ParsedConfig parsed_;
  const Architecture& names_;
  SourceNaming naming_;
  const ConvertOptions& options_;
  std::map<std::string, Parts> residents_;  // by canonical module
  std::vector<LayerParts> layers_;
};

}  // namespace

bool lacks_shards(const fs::path& path) {
  const auto directory = resolve_checkpoint_directory(path);
  if (!directory.is_ok() || !is_there(directory.value() / kShardIndexName)) return false;
  const auto index = read_shard_index(directory.value());
  if (!index.is_ok()) return true;  // plan_from_headers() says what is wrong
  return std::any_of(
      index.value().shards.begin(), index.value().shards.end(),
      [&](const std::string& shard) { return !is_there(directory.value() / shard); });
}

Result<HeaderPlan> plan_from_headers(const fs::path& path, const ConvertOptions& options) {
  MOE_ASSIGN_OR_RETURN(const fs::path directory, resolve_checkpoint_directory(path));
  MOE_ASSIGN_OR_RETURN(ParsedConfig config, read_model_config(directory / kConfigName));
  MOE_ASSIGN_OR_RETURN(const Architecture* names, architecture_of(config.model));
  MOE_ASSIGN_OR_RETURN(const ShardIndex index, read_shard_index(directory));
  return HeaderReader(directory, std::move(config), *names, options).plan(index);
}

}  // namespace moepack

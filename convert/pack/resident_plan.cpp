#include "convert/pack/resident_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "convert/pack/target_format.h"
#include "convert/source/split_heads.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

struct Module {
  SourceModule tensors;
  SourceTensor head_values;  // beside the keys of kv_b_proj, which are then the codes
  bool has_split_heads = false;
  const ResidentRule* rule = nullptr;
  std::uint32_t layer = 0;
  const FusedRule* fused = nullptr;  // the tensors hold more than this module
  const FusedPart* fused_part = nullptr;
};

using Modules = std::map<std::string, Module>;  // by canonical name, so sorted

Result<Modules> collect(const ModelConfig& config, const SourceNaming& naming,
                        std::span<const ResidentSource> tensors) {
  Modules modules;
  for (const ResidentSource& entry : tensors) {
    const ResidentRule& rule = *entry.name.rule;
    if (rule.scope != LayerScope::kModel) {
      if (entry.name.layer >= config.num_layers) {
        return corrupt(entry.tensor.where(), "is of layer " + std::to_string(entry.name.layer) +
                                                 ", but " + naming.configured_by() + " gives " +
                                                 std::to_string(config.num_layers) + " layers");
      }
      if (!applies_to_layer(rule, config, entry.name.layer)) {
        const bool is_mixer =
            rule.scope != LayerScope::kExperts && rule.scope != LayerScope::kDense;
        return corrupt(entry.tensor.where(), "belongs to the other kind of " +
                                                 std::string(is_mixer ? "attention" : "network") +
                                                 " than " + naming.configured_by() +
                                                 " gives layer " +
                                                 std::to_string(entry.name.layer));
      }
      if (!exists_in(rule, config, entry.name.layer)) {
        return corrupt(entry.tensor.where(), "is of a part that " + naming.configured_by() +
                                                 " leaves out of layer " +
                                                 std::to_string(entry.name.layer));
      }
    }
    Module& module = modules[entry.name.module];
    module.rule = &rule;
    module.layer = entry.name.layer;
    module.fused = entry.name.fused;
    module.fused_part = entry.name.fused_part;
    const auto head_rows = rule.role == ModuleRole::kKeyValueUp && entry.tensor.is_gguf()
                               ? split_head_rows(entry.tensor.name())
                               : std::nullopt;
    module.has_split_heads |= head_rows.has_value();
    if (head_rows == HeadRows::kValues) {
      module.head_values = entry.tensor;
      continue;
    }
    MOE_RETURN_IF_ERROR(module.tensors.add(entry.name.part, entry.tensor));
  }
  return modules;
}

Status require(const Modules& modules, const ResidentRule& rule, const ModelConfig& config,
               std::uint32_t layer, const SourceNaming& naming) {
  const std::vector<std::uint64_t> shape = module_shape(rule, config, layer);
  if (!exists_in(rule, config, layer)) return Status::ok();
  const auto it = modules.find(resident_module(rule, layer));
  if (it != modules.end() && it->second.tensors.codes()) return Status::ok();
  return not_found(
      Where{.file = naming.place(), .tensor = naming.resident(rule, layer)},
      "is missing; " + naming.configured_by() + " gives it the shape " + shape_text(shape),
      "the checkpoint is incomplete; download it again");
}

Status require_all(const Architecture& names, const ModelConfig& config, const Modules& modules,
                   const SourceNaming& naming) {
  for (const ResidentRule& rule : names.residents) {
    if (rule.scope == LayerScope::kModel) {
      if (rule.role == ModuleRole::kOutputHead && config.tie_word_embeddings) continue;
      MOE_RETURN_IF_ERROR(require(modules, rule, config, 0, naming));
      continue;
    }
    for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
      if (!applies_to_layer(rule, config, layer)) continue;
      MOE_RETURN_IF_ERROR(require(modules, rule, config, layer, naming));
    }
  }
  return Status::ok();
}

// transformers writes conv1d as [channels, 1, taps] and norms as w with y = (1 + w) x; mlx-lm
// writes [channels, taps, 1] and adds the 1 to the norms in the same pass.
Result<ResidentConventions> detect_conventions(const Architecture& names, const Modules& modules,
                                               const ModelConfig& config,
                                               const SourceNaming& naming) {
  SourceTensor first;
  ResidentConventions conventions;
  if (names.norms == NormSource::kFactor) return conventions;
  for (const auto& [name, module] : modules) {
    if (module.rule->role != ModuleRole::kDeltaConv || !module.tensors.codes()) continue;
    const SourceTensor& tensor = module.tensors.codes();
    const std::vector<std::uint64_t> c1t = module_shape(*module.rule, config, module.layer);
    const std::vector<std::uint64_t> ct1{c1t[0], c1t[2], c1t[1]};
    const std::vector<std::uint64_t> shape(tensor.shape().begin(), tensor.shape().end());
    const bool is_c1t = shape == c1t;
    if ((!is_c1t && shape != ct1) || c1t == ct1) {
      return corrupt(tensor.where(), "shape " + shape_text(shape) + ", but config.json gives " +
                                         shape_text(c1t) + " or " + shape_text(ct1));
    }
    const auto found =
        is_c1t ? ResidentConventions::Conv1d::kC1T : ResidentConventions::Conv1d::kCT1;
    if (first && found != conventions.conv1d) {
      return corrupt(tensor.where(), "shape " + shape_text(shape) +
                                         " is of another convention than that of tensor " +
                                         printable(first.name()));
    }
    conventions.conv1d = found;
    conventions.norm =
        is_c1t ? ResidentConventions::Norm::kOnePlus : ResidentConventions::Norm::kPlain;
    first = tensor;
  }
  if (!first) {
    return unsupported(Where{.file = naming.place()},
                       "no conv1d tensor tells whether norms hold w or 1 + w");
  }
  return conventions;
}

// The rows of each head's first half, then of its second, where they alternate: llama.cpp pairs
// neighbours (its conversion/llama.py), transformers the halves.
RowRuns unpaired_rows(std::uint64_t rows, std::uint64_t head_dim) {
  RowRuns runs;
  for (std::uint64_t head = 0; head < rows; head += head_dim) {
    for (const std::uint64_t half : {0U, 1U}) {
      runs.push_back({.first = head + half, .rows = 1, .stride = 2, .count = head_dim / 2});
    }
  }
  return runs;
}

// `stored`: the shape of the module's tensor, which may hold more than the module.
Result<ModuleForm> form_of(const Module& module, std::span<const std::uint64_t> stored,
                           const ModelConfig& config, const DeclaredFormats& declared) {
  if (module.has_split_heads) {
    return split_heads_form(module.tensors.codes(), module.head_values,
                            {.heads = config.num_heads,
                             .key_rows = std::uint64_t{config.head_dim} - config.rotary_dim,
                             .value_rows = config.value_dim,
                             .cols = config.kv_rank});
  }
  MOE_ASSIGN_OR_RETURN(ModuleForm form,
                       recognise_module(module.tensors, stored, declared.source()));
  if (form.encoding->read_rows != nullptr && stored.size() != 2) {
    return unsupported(module.tensors.codes().where(),
                       "is no matrix, and yet in " + std::string(form.encoding->name));
  }
  return form;
}

Status add_tensor(const Architecture& names, const std::string& name, const Module& module,
                  const ModelConfig& config, const DeclaredFormats& declared,
                  const ConvertOptions& options, const ResidentConventions& conventions,
                  ResidentPlan& plan) {
  const ResidentRule& rule = *module.rule;
  std::vector<std::uint64_t> shape = module_shape(rule, config, module.layer);
  if (shape.size() == 3 && conventions.conv1d == ResidentConventions::Conv1d::kCT1) {
    std::swap(shape[1], shape[2]);
  }
  if (!module.tensors.codes()) {
    const auto* const orphan =
        std::find_if(module.tensors.begin(), module.tensors.end(),
                     [](const SourceTensor& tensor) { return static_cast<bool>(tensor); });
    return not_found(orphan->where(), "its .weight is missing");
  }
  const std::vector<std::uint64_t> stored =
      module.fused == nullptr ? shape : module.fused->shape(config);
  MOE_ASSIGN_OR_RETURN(ModuleForm form, form_of(module, stored, config, declared));
  const WeightFormat format = form.format;
  MOE_RETURN_IF_ERROR(declared.check(form));
  const ResidentTensor tensor{.name = name,
                              .has_weight_suffix = rule.has_weight_suffix,
                              .format = resident_target(rule, {format, form.is_decoded()}, options),
                              .shape = shape,
                              .bytes = {}};
  if (!append_resident(tensor, plan.manifest)) {
    plan.kept.push_back(name);
    ResidentTensor kept = tensor;
    kept.format = format;
    if (!append_resident(std::move(kept), plan.manifest)) {
      return corrupt(module.tensors.codes().where(),
                     "shape " + shape_text(shape) + " cannot be held in " + to_string(format));
    }
  }
  const ResidentTensor& stored_tensor = plan.manifest.tensors.back();
  // As one matrix, whatever the number of dimensions.
  form.rows = module.fused == nullptr ? stored_tensor.rows : stored.front();
  form.cols = stored_tensor.cols;
  form.matrices = 1;
  if (module.fused_part != nullptr && module.fused_part->rows == nullptr) {
    form = picked_columns_form(std::move(form), form.rows, form.cols,
                               module.fused_part->first_column, module.fused_part->column_step);
    const auto picked = std::make_shared<const ModuleForm>(std::move(form));
    plan.sources.push_back(slice_matrix(picked, 0, 0, picked->rows));
    return Status::ok();
  }
  const std::uint64_t all_rows = form.rows;
  const SourceMatrix whole =
      slice_matrix(std::make_shared<const ModuleForm>(std::move(form)), 0, 0, all_rows);
  if (names.gguf_pairs_rows && module.tensors.codes().is_gguf() &&
      (rule.role == ModuleRole::kQuery || rule.role == ModuleRole::kKey)) {
    plan.sources.push_back(gather_rows(whole, unpaired_rows(all_rows, config.head_dim)));
    return Status::ok();
  }
  plan.sources.push_back(
      module.fused == nullptr ? whole : gather_rows(whole, module.fused_part->rows(config)));
  return Status::ok();
}

}  // namespace

Result<ResidentPlan> plan_residents(const Architecture& names, const ModelConfig& config,
                                    const DeclaredFormats& declared,
                                    std::span<const ResidentSource> tensors,
                                    const ConvertOptions& options, const SourceNaming& naming,
                                    const std::optional<ResidentConventions>& conventions) {
  MOE_ASSIGN_OR_RETURN(const Modules modules, collect(config, naming, tensors));
  MOE_RETURN_IF_ERROR(require_all(names, config, modules, naming));
  ResidentPlan plan;
  if (conventions.has_value()) {
    plan.manifest.conventions = *conventions;
  } else {
    MOE_ASSIGN_OR_RETURN(plan.manifest.conventions,
                         detect_conventions(names, modules, config, naming));
  }
  for (const auto& [name, module] : modules) {
    MOE_RETURN_IF_ERROR(add_tensor(names, name, module, config, declared, options,
                                   plan.manifest.conventions, plan));
  }
  return plan;
}

}  // namespace moepack

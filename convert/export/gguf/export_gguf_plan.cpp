#include "convert/export/gguf/export_gguf_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "convert/source/v_head_rows.h"
#include "formats/weights/affine_blocks.h"
#include "formats/weights/format_json.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

std::uint64_t product(const std::vector<std::uint64_t>& shape) {
  std::uint64_t all = 1;
  for (std::uint64_t n : shape) all *= n;
  return all;
}

// ---- residents ----------------------------------------------------------------------------------

class ResidentPlanner {
 public:
  ResidentPlanner(const ModelDir& model, const Architecture& names, GgufHead& head, GgufPlan& plan)
      : model_(model), names_(names), head_(head), plan_(plan) {
    for (const ResidentTensor& tensor : model.residents.tensors) by_name_[tensor.name] = &tensor;
    const bool is_tiled =
        model.residents.conventions.v_heads == ResidentConventions::VHeads::kTiled;
    const bool matters = model.config.linear_key_heads != model.config.linear_value_heads;
    tiles_ = matters && names.gguf_tiles_v_heads && !is_tiled;
    cannot_group_ = matters && !names.gguf_tiles_v_heads && is_tiled;
  }

  Status add_all();

 private:
  Status add_rule(const ResidentRule& rule, std::uint32_t layer);
  Status add_fused(const FusedRule& rule, std::uint32_t layer);
  Result<GgufResident> plan_one(const ResidentRule& rule, std::uint32_t layer);
  Status choose_form(const ResidentRule& rule, GgufResident& resident) const;
  Status reorder(const ResidentRule& rule, GgufResident& resident) const;
  Status add_to_head(std::string_view name, QFormatId target, std::vector<std::uint64_t> shape,
                     std::uint32_t& index);
  Status refuse(const ResidentTensor& tensor, const std::string& what,
                std::string_view remedy = {}) const {
    const std::string file = (model_.path / kResidentManifestName).string();
    return unsupported(Where{.file = file, .tensor = tensor.name}, what, remedy);
  }
  bool is_fused_part(const ResidentRule& rule) const {
    return std::any_of(names_.fused.begin(), names_.fused.end(), [&](const FusedRule& fused) {
      return fused.usual_in_gguf &&
             std::any_of(fused.parts.begin(), fused.parts.end(),
                         [&](const FusedPart& part) { return part.role == rule.role; });
    });
  }

  const ModelDir& model_;
  const Architecture& names_;
  GgufHead& head_;
  GgufPlan& plan_;
  std::map<std::string, const ResidentTensor*, std::less<>> by_name_;
  std::set<std::string, std::less<>> used_;
  bool tiles_ = false;
  bool cannot_group_ = false;
};

Status ResidentPlanner::add_to_head(std::string_view name, QFormatId target,
                                    std::vector<std::uint64_t> shape, std::uint32_t& index) {
  index = static_cast<std::uint32_t>(head_.tensors().size());
  return head_.add_tensor(name, *ggml_type_of(target), std::move(shape));
}

// The change and the output's type.
Status ResidentPlanner::choose_form(const ResidentRule& rule, GgufResident& resident) const {
  const ResidentTensor& source = *resident.source;
  const ResidentConventions& how = model_.residents.conventions;
  resident.target = source.format.id;
  if (is_block(source.format) && !is_ggml_block(source.format)) {
    return refuse(source, "is in " + to_string(source.format) + ", which ggml has no type for",
                  "convert the model again with --resident bf16");
  }
  // llama.cpp wants F32 for what is never rounded, and computes routers in it.
  if (rule.rounding != Rounding::kAsAsked && !is_block(source.format)) {
    resident.target = QFormatId::kF32;
    if (source.format.id != QFormatId::kF32) resident.change = GgufChange::kWiden;
  }
  if (follows_norm_convention(rule.role) && how.norm == ResidentConventions::Norm::kOnePlus) {
    resident.change = GgufChange::kNormPlusOne;
  }
  if (rule.role == ModuleRole::kDeltaALog && how.a_log == ResidentConventions::ALog::kLog) {
    resident.change = GgufChange::kNegExp;
  }
  if (rule.rounding == Rounding::kNever && qformat_info(source.format.id).kind != QKind::kPlain) {
    return refuse(source, "is in " + to_string(source.format) + ", llama.cpp wants floats");
  }
  if (rule.rounding != Rounding::kAsAsked || !is_affine(source.format)) return Status::ok();
  const auto blocks = affine_block_format(source.format);
  if (!blocks.has_value()) {
    return refuse(source,
                  "is in " + to_string(source.format) +
                      ", and no type of ggml has blocks of more than 5 bits with a minimum",
                  "convert the unquantized checkpoint, without --resident or with bf16");
  }
  resident.change = GgufChange::kBlocks;
  resident.target = *blocks;
  return Status::ok();
}

Status ResidentPlanner::reorder(const ResidentRule& rule, GgufResident& resident) const {
  const ModelConfig& config = model_.config;
  const auto place = v_head_place(rule, config);
  if (!place.has_value()) return Status::ok();
  if (cannot_group_) {
    return refuse(*resident.source, "has tiled V heads, llama.cpp groups those of this model");
  }
  if (!tiles_) return Status::ok();
  RowRuns runs = v_head_runs(*place, config, ResidentConventions::VHeads::kGrouped,
                             ResidentConventions::VHeads::kTiled);
  if (!place->in_columns) {
    resident.gather = std::move(runs);
    return Status::ok();
  }
  const std::uint32_t block = qformat_info(resident.target).block_values;
  if (block != 0 && config.linear_value_dim % block != 0) {
    return refuse(*resident.source,
                  "has blocks of " + std::to_string(block) + " columns across V heads of " +
                      std::to_string(config.linear_value_dim) + ", which must be reordered",
                  "export the model that it was quantized from");
  }
  resident.columns = std::move(runs);
  return Status::ok();
}

Result<GgufResident> ResidentPlanner::plan_one(const ResidentRule& rule, std::uint32_t layer) {
  const std::string module = resident_module(rule, layer);
  const std::string file = (model_.path / kResidentManifestName).string();
  const auto found = by_name_.find(module);
  if (found == by_name_.end()) {
    return not_found(Where{.file = file, .tensor = module}, "is missing",
                     "convert the model again");
  }
  used_.insert(module);
  const ResidentTensor& source = *found->second;
  GgufResident resident{.source = &source};
  const std::vector<std::uint64_t> shape = module_shape(rule, model_.config, layer);
  const bool is_conv = rule.role == ModuleRole::kDeltaConv;
  const bool is_turned = is_conv && source.shape.size() == 3 && source.shape[0] == shape[0] &&
                         source.shape[1] == shape[2] && source.shape[2] == 1;
  if (source.shape != shape && !is_turned) {
    return corrupt(
        Where{.file = file, .tensor = module},
        "has shape " + shape_text(source.shape) + ", by config.json it is " + shape_text(shape));
  }
  MOE_RETURN_IF_ERROR(choose_form(rule, resident));
  // Channels and heads are rows, whatever the shape; memory is the same.
  const bool has_heads = v_head_place(rule, model_.config).has_value();
  resident.rows = shape.size() > 1 || has_heads ? shape[0] : 1;
  resident.cols = product(shape) / resident.rows;
  MOE_RETURN_IF_ERROR(reorder(rule, resident));
  return resident;
}

Status ResidentPlanner::add_rule(const ResidentRule& rule, std::uint32_t layer) {
  if (rule.role == ModuleRole::kOutputHead && model_.config.tie_word_embeddings) {
    used_.insert(std::string(rule.name));  // of no use, if it is there at all
    return Status::ok();
  }
  if (is_fused_part(rule)) return Status::ok();
  MOE_ASSIGN_OR_RETURN(GgufResident resident, plan_one(rule, layer));
  std::vector<std::uint64_t> shape = module_shape(rule, model_.config, layer);
  if (rule.role == ModuleRole::kDeltaConv) shape = {shape[0], shape[2]};
  if (shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());  // the shared expert's gate
  MOE_RETURN_IF_ERROR(add_to_head(gguf_tensor_name(rule, layer), resident.target, std::move(shape),
                                  resident.tensor));
  plan_.residents.push_back(std::move(resident));
  return Status::ok();
}

Status ResidentPlanner::add_fused(const FusedRule& rule, std::uint32_t layer) {
  std::vector<GgufResident> parts;
  for (const FusedPart& part : rule.parts) {
    MOE_ASSIGN_OR_RETURN(GgufResident resident, plan_one(*find_rule(names_, part.role), layer));
    resident.scatter = part.rows(model_.config);
    if (!parts.empty() && parts.front().target != resident.target) {
      return refuse(*resident.source, "would be " + ggml_type_name(*ggml_type_of(resident.target)) +
                                          ", but " + parts.front().source->name +
                                          ", which llama.cpp has in one tensor with it, " +
                                          ggml_type_name(*ggml_type_of(parts.front().target)));
    }
    parts.push_back(std::move(resident));
  }
  std::uint32_t tensor = 0;
  MOE_RETURN_IF_ERROR(add_to_head(gguf_tensor_name(rule, layer), parts.front().target,
                                  rule.shape(model_.config), tensor));
  for (GgufResident& part : parts) {
    part.tensor = tensor;
    plan_.residents.push_back(std::move(part));
  }
  return Status::ok();
}

Status ResidentPlanner::add_all() {
  for (const ResidentRule& rule : names_.residents) {
    if (rule.scope == LayerScope::kModel) MOE_RETURN_IF_ERROR(add_rule(rule, 0));
  }
  for (std::uint32_t layer = 0; layer < model_.config.num_layers; ++layer) {
    for (const ResidentRule& rule : names_.residents) {
      if (!applies_to_layer(rule, model_.config, layer)) continue;
      MOE_RETURN_IF_ERROR(add_rule(rule, layer));
    }
    for (const FusedRule& rule : names_.fused) {
      const bool is_linear = model_.config.layer_type(layer) == LayerType::kLinearAttention;
      if (rule.usual_in_gguf && is_linear) MOE_RETURN_IF_ERROR(add_fused(rule, layer));
    }
  }
  for (const ResidentTensor& tensor : model_.residents.tensors) {
    if (used_.find(tensor.name) == used_.end()) {
      return refuse(tensor, "is not a tensor of model type " + model_.config.model_type +
                                " that is known here");
    }
  }
  return Status::ok();
}

// ---- experts ------------------------------------------------------------------------------------

constexpr std::array<ExpertMatrix, kProjections> kMatrices{ExpertMatrix::kGate, ExpertMatrix::kUp,
                                                           ExpertMatrix::kDown};

Status refuse_layer(const ModelDir& model, std::uint32_t layer, Projection projection,
                    const std::string& what, std::string_view remedy = {}) {
  const std::string file = (model.pack_path / kPackManifestName).string();
  return unsupported(Where{.file = file},
                     "layer " + std::to_string(layer) + ", " +
                         std::string(projection_name(projection)) + ": " + what,
                     remedy);
}

// The type that holds this projection of all experts of a layer.
Result<QFormatId> common_type(const ModelDir& model, std::uint32_t layer, Projection projection) {
  std::optional<QFormatId> common;
  const WeightFormat& first = model.pack.layout_of(layer, 0).of(projection).format;
  bool all_affine = true;
  for (std::uint32_t e = 0; e < model.pack.num_experts; ++e) {
    const WeightFormat& format = model.pack.layout_of(layer, e).of(projection).format;
    all_affine = all_affine && is_affine(format);
    if (is_block(format) && !is_ggml_block(format)) {
      return refuse_layer(model, layer, projection,
                          "expert " + std::to_string(e) + " is in " + to_string(format) +
                              ", which ggml has no type for",
                          "export a pack of 2 to 5 bits or the unquantized experts");
    }
    const QFormatId type =
        is_affine(format) ? affine_block_format(format).value_or(format.id) : format.id;
    if (is_affine(format) && type == format.id) {
      return refuse_layer(model, layer, projection,
                          "expert " + std::to_string(e) + " is in " + to_string(format) +
                              ", and no type of ggml has blocks of more than 5 bits with a minimum",
                          "export a pack of 2 to 5 bits or the unquantized experts");
    }
    if (!common.has_value()) common = type;
    if (*common == type) continue;
    if (!all_affine) {
      return refuse_layer(model, layer, projection,
                          "expert 0 is in " + to_string(first) + ", expert " + std::to_string(e) +
                              " in " + to_string(format) +
                              "; GGUF has one type for all experts of a layer",
                          "export another pack");
    }
    common = QFormatId::kQ51;  // holds codes of up to 4 bits too
  }
  return *common;
}

Status add_experts(const ModelDir& model, GgufHead& head, GgufPlan& plan) {
  for (std::uint32_t layer = 0; layer < model.pack.num_layers; ++layer) {
    GgufExperts& experts = plan.layers.emplace_back();
    for (Projection p : kAllProjections) {
      const auto i = static_cast<std::size_t>(p);
      MOE_ASSIGN_OR_RETURN(experts.targets[i], common_type(model, layer, p));
      const ProjectionLayout& layout = model.pack.layout_of(layer, 0).of(p);
      experts.tensors[i] = static_cast<std::uint32_t>(head.tensors().size());
      MOE_RETURN_IF_ERROR(head.add_tensor(gguf_tensor_name(*plan.names, kMatrices[i], layer),
                                          *ggml_type_of(experts.targets[i]),
                                          {model.pack.num_experts, layout.rows, layout.cols}));
    }
  }
  return Status::ok();
}

void count_blocks(const ModelDir& model, GgufPlan& plan) {
  std::map<std::string, std::uint32_t> counts;
  const auto count = [&](const WeightFormat& from, QFormatId to) {
    if (is_affine(from) && is_block({.id = to})) {
      ++counts[to_string(from) + " as " + ggml_type_name(*ggml_type_of(to))];
    }
  };
  for (const GgufResident& r : plan.residents) count(r.source->format, r.target);
  for (std::uint32_t layer = 0; layer < plan.layers.size(); ++layer) {
    for (Projection p : kAllProjections) {
      std::set<std::string> seen;
      for (std::uint32_t e = 0; e < model.pack.num_experts; ++e) {
        const WeightFormat from =
            in_order(model.pack.layout_of(layer, e).of(p).format, RowOrder::kRows);
        if (seen.insert(to_string(from)).second) {
          count(from, plan.layers[layer].targets[static_cast<std::size_t>(p)]);
        }
      }
    }
  }
  plan.blocks.assign(counts.begin(), counts.end());
}

}  // namespace

Result<GgufPlan> plan_gguf(const ModelDir& model, GgufHead& head) {
  GgufPlan plan;
  plan.names = find_architecture(model.config.model_type);
  if (plan.names == nullptr || !plan.names->exports_gguf) {
    const std::string file = (model.path / "config.json").string();
    return unsupported(Where{.file = file},
                       "models of type " + printable(model.config.model_type, 64) +
                           " are not written as GGUF files",
                       "known are: " + exported_gguf_architectures());
  }
  MOE_RETURN_IF_ERROR(ResidentPlanner(model, *plan.names, head, plan).add_all());
  MOE_RETURN_IF_ERROR(add_experts(model, head, plan));
  count_blocks(model, plan);
  return plan;
}

}  // namespace moepack

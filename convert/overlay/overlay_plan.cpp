#include "convert/overlay/overlay_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "convert/overlay/same_weights.h"
#include "convert/source/expert_name.h"
#include "convert/source/model_files.h"
#include "convert/source/v_head_rows.h"
#include "formats/base/bytes.h"
#include "formats/base/number_text.h"
#include "formats/flashmoe/flashmoe_resident.h"

namespace moepack {
namespace {

// Rows of a matrix that are looked at to tell whether it is another model's.
constexpr std::uint64_t kSampledRows = 8;
constexpr std::uint64_t kSampledExperts = 2;

// nullptr when there is none of that name.
const ResidentTensor* find_resident(const ResidentManifest& residents, const std::string& name) {
  const auto found =
      std::lower_bound(residents.tensors.begin(), residents.tensors.end(), name,
                       [](const ResidentTensor& t, const std::string& n) { return t.name < n; });
  return found == residents.tensors.end() || found->name != name ? nullptr : &*found;
}

class OverlayPlanner {
 public:
  OverlayPlanner(const ModelSource& source, const ConvertPlan& plan,
                 const ResidentConventions& conventions)
      : source_(source),
        plan_(plan),
        from_(plan.resident.conventions.v_heads),
        to_(conventions.v_heads),
        heads_(source.config().model, from_, to_) {}

  Status add_group(OverlayGroup group) {
    const std::size_t before = planned_.size();
    const std::uint32_t layers = has_layers(group) ? source_.config().model.num_layers : 1;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (const OverlayRole& role : overlay_roles()) {
        if (role.group == group) MOE_RETURN_IF_ERROR(add(role, layer));
      }
    }
    if (planned_.size() > before) return Status::ok();
    const std::string path = source_.path().string();
    return not_found(Where{.file = path},
                     "has no " + std::string(overlay_group_name(group)) + " of its own",
                     group == OverlayGroup::kLmHead ? "its head is its embedding: overlay that"
                                                    : "leave that group out");
  }

  std::vector<PlannedOverlay> take() { return std::move(planned_); }

 private:
  Status add(const OverlayRole& role, std::uint32_t layer);
  PlannedOverlay& file_of(const OverlayRole& role, const WeightFormat& format);

  const ModelSource& source_;
  const ConvertPlan& plan_;
  ResidentConventions::VHeads from_;
  ResidentConventions::VHeads to_;
  VHeadRows heads_;
  std::vector<PlannedOverlay> planned_;
};

PlannedOverlay& OverlayPlanner::file_of(const OverlayRole& role, const WeightFormat& format) {
  const std::string_view stem = overlay_stem(role, format);
  for (PlannedOverlay& planned : planned_) {
    if (planned.overlay.stem == stem) return planned;
  }
  PlannedOverlay planned;
  planned.overlay.stem = stem;
  planned.overlay.group = role.group;
  planned.overlay.source = {
      .name = source_.name(), .fingerprint = source_.fingerprint(), .method = {}};
  planned_.push_back(std::move(planned));
  return planned_.back();
}

// Nothing where the model or the layer has no such matrix; the plan saw to it that none is missing.
Status OverlayPlanner::add(const OverlayRole& role, std::uint32_t layer) {
  const ResidentRule* rule = find_rule(source_.names(), role.module);
  if (rule == nullptr) return Status::ok();
  const std::string name = resident_module(*rule, layer);
  const ResidentTensor* found = find_resident(plan_.resident, name);
  if (found == nullptr) return Status::ok();
  SourceMatrix matrix =
      plan_.resident_sources[static_cast<std::size_t>(found - plan_.resident.tensors.data())];
  PlannedOverlay& planned = file_of(role, found->format);
  OverlayTensor entry{.role = &role, .layer = layer, .tensor = *found};
  if (role.group == OverlayGroup::kLinearAttention) entry.v_heads = to_;  // others have none
  entry.tensor.offsets.codes() = align_up(planned.overlay.data_size, kResidentAlignment);
  planned.overlay.data_size = entry.tensor.offsets.codes() + entry.tensor.bytes.codes();
  const auto place = v_head_place(*rule, source_.config().model);
  if (place.has_value() && matrix.runs != nullptr && !heads_.changes_nothing()) {
    return unsupported(matrix.slices.codes().tensor.where(),
                       "holds rows of several matrices, whose V heads cannot be moved as well");
  }
  if (place.has_value()) {
    std::optional<SourceMatrix> moved = heads_.gather(matrix, *place);
    if (!moved.has_value()) entry.v_heads = from_;
    if (moved.has_value()) matrix = std::move(*moved);
  }
  planned.overlay.tensors.push_back(std::move(entry));
  planned.sources.push_back(std::move(matrix));
  return Status::ok();
}

constexpr const char* kOtherModelRemedy =
    "the file is of another model; take one that was made from the same weights";

Status other_model(const Where& where, const std::string& what) {
  return make_error(StatusCode::kInvalidArgument, where, what, kOtherModelRemedy);
}

Status check_difference(double difference, const SourceTensor& tensor, const std::string& name) {
  if (difference <= kMaxRelativeRms) return Status::ok();
  return other_model(tensor.where(), "differs from the model's " + name + " by " +
                                         six_digits(difference) + " of its size, a rounding of " +
                                         "the same weights by less than " +
                                         six_digits(kMaxRelativeRms));
}

// Two experts of a layer of the pack in `directory`.
Status check_layer(const ConvertPlan& plan, const std::filesystem::path& directory,
                   const PackManifest& pack, std::uint32_t layer, WeightSampler& sampler) {
  MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / pack.layers[layer].file));
  for (std::uint64_t i = 0; i < kSampledExperts; ++i) {
    const auto e = static_cast<std::uint32_t>(pack.num_experts * i / kSampledExperts);
    for (Projection p : kAllProjections) {
      const ProjectionLayout& part = pack.layout_of(layer, e).of(p);
      const SourceMatrix& source = plan.experts.of(layer, e, p);
      MOE_ASSIGN_OR_RETURN(
          const double difference,
          sampler.difference(stored_matrix(source),
                             stored_matrix(part, file, pack.layers[layer].experts[e].offset),
                             part.cols, kSampledRows));
      MOE_RETURN_IF_ERROR(
          check_difference(difference, source.slices.codes().tensor, expert_name(layer, e, p)));
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<PlannedOverlay>> plan_resident_overlays(const ModelSource& source,
                                                           const ConvertPlan& plan,
                                                           const ResidentConventions& conventions,
                                                           std::span<const OverlayGroup> groups) {
  OverlayPlanner planner(source, plan, conventions);
  for (OverlayGroup group : groups) {
    MOE_RETURN_IF_ERROR(planner.add_group(group));
  }
  return planner.take();
}

Result<OverlaidModel> open_overlaid_model(const std::filesystem::path& model) {
  OverlaidModel out;
  out.path = model;
  MOE_RETURN_IF_ERROR(check_model_finished(model));
  MOE_ASSIGN_OR_RETURN(ParsedConfig parsed, read_model_config(model / "config.json"));
  out.config = std::move(parsed.model);
  MOE_ASSIGN_OR_RETURN(out.residents, read_model_residents(model, out.config));
  return out;
}

Status check_same_model(const ModelSource& source, const OverlaidModel& model) {
  const ModelConfig& there = source.config().model;
  const ModelConfig& here = model.config;
  const std::string path = source.path().string();
  MOE_RETURN_IF_ERROR(source.check_family(here.model_type, kOtherModelRemedy));
  struct Dimension {
    std::string_view name;
    std::uint64_t there;
    std::uint64_t here;
  };
  const std::array<Dimension, 17> dimensions{{
      {"layers", there.num_layers, here.num_layers},
      {"hidden size", there.hidden_size, here.hidden_size},
      {"vocabulary", there.vocab_size, here.vocab_size},
      {"attention heads", there.num_heads, here.num_heads},
      {"key-value heads", there.num_kv_heads, here.num_kv_heads},
      {"head size", there.head_dim, here.head_dim},
      {"experts", there.num_experts, here.num_experts},
      {"expert width", there.expert_width, here.expert_width},
      {"shared expert width", there.shared_expert_width, here.shared_expert_width},
      {"dense width", there.dense_width, here.dense_width},
      {"query rank", there.query_rank, here.query_rank},
      {"key-value rank", there.kv_rank, here.kv_rank},
      {"value size", there.value_dim, here.value_dim},
      {"linear key heads", there.linear_key_heads, here.linear_key_heads},
      {"linear value heads", there.linear_value_heads, here.linear_value_heads},
      {"linear key size", there.linear_key_dim, here.linear_key_dim},
      {"linear value size", there.linear_value_dim, here.linear_value_dim},
  }};
  for (const Dimension& d : dimensions) {
    if (d.there == d.here) continue;
    return other_model(Where{.file = path}, "gives " + std::to_string(d.there) + " for " +
                                                std::string(d.name) + ", the model has " +
                                                std::to_string(d.here));
  }
  if (there.layers == here.layers) return Status::ok();
  return other_model(Where{.file = path}, "has full attention in other layers than the model");
}

Status check_same_residents(std::span<const PlannedOverlay> overlays, const OverlaidModel& model) {
  MOE_ASSIGN_OR_RETURN(const ResidentData data, ResidentData::open(model.path, model.residents));
  WeightSampler sampler;
  for (const PlannedOverlay& planned : overlays) {
    for (std::size_t i = 0; i < planned.sources.size(); ++i) {
      const OverlayTensor& entry = planned.overlay.tensors[i];
      const ResidentTensor* own = find_resident(model.residents, entry.tensor.name);
      // A tied head has no matrix of its own, and one in another order cannot be compared.
      if (own == nullptr || (planned.overlay.group == OverlayGroup::kLinearAttention &&
                             entry.v_heads != model.residents.conventions.v_heads)) {
        continue;
      }
      if (own->rows != entry.tensor.rows || own->cols != entry.tensor.cols) {
        const std::string file = (model.path / kResidentManifestName).string();
        return corrupt(Where{.file = file, .tensor = own->name},
                       "is " + std::to_string(own->rows) + " x " + std::to_string(own->cols) +
                           ", config.json asks for " + std::to_string(entry.tensor.rows) + " x " +
                           std::to_string(entry.tensor.cols),
                       "convert the checkpoint again");
      }
      const SourceMatrix& source = planned.sources[i];
      MOE_ASSIGN_OR_RETURN(
          const double difference,
          sampler.difference(stored_matrix(source), data.matrix(*own), own->cols, kSampledRows));
      MOE_RETURN_IF_ERROR(check_difference(difference, source.slices.codes().tensor, own->name));
    }
  }
  return Status::ok();
}

Result<std::string> check_same_experts(const ConvertPlan& plan, const OverlaidModel& model,
                                       const std::string& except) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_packs(model.path));
  std::string problem = "the model has no other pack";
  for (const std::string& name : names) {
    if (name == except) continue;
    const auto pack = read_pack_directory(model.path / name, pack_dimensions(model.config));
    if (!pack.is_ok()) {
      problem = "pack " + printable(name) + " cannot be read (" + pack.status().message() + ")";
      continue;
    }
    MOE_RETURN_IF_ERROR(check_pack_fits(model.config, pack.value(), model.path / name));
    WeightSampler sampler;
    for (std::uint32_t layer = 0; layer < pack.value().num_layers; ++layer) {
      if (pack.value().experts_of(layer) == 0) continue;
      MOE_RETURN_IF_ERROR(check_layer(plan, model.path / name, pack.value(), layer, sampler));
    }
    return std::string();
  }
  return problem;
}

}  // namespace moepack

#include "formats/calibration/expert_counts.h"

#include <limits>
#include <string>

#include "formats/base/bytes.h"
#include "formats/base/limits.h"

namespace moepack {
namespace {

Result<std::uint32_t> settle(const char* what, const char* flag, std::uint32_t stated,
                             std::uint32_t known, std::string_view file) {
  if (stated == 0 && known == 0) {
    return make_error(StatusCode::kInvalidArgument, Where{.file = file},
                      "does not say how many " + std::string(what) + " the model has",
                      "name the model, or give " + std::string(flag));
  }
  if (stated == 0 || known == 0 || stated == known) return stated != 0 ? stated : known;
  return corrupt(Where{.file = file}, "is of a model with " + std::to_string(stated) + " " + what +
                                          ", this one has " + std::to_string(known));
}

}  // namespace

std::string_view ExpertCounts::add(std::uint64_t layer, std::uint64_t expert, std::uint64_t count,
                                   Overflow overflow) {
  if (layer >= kMaxModelLayers) return "is a layer that no model has";
  if (expert >= kMaxLayerExperts) return "is an expert that no model has";
  std::vector<std::uint64_t>& counts = layers_[static_cast<std::uint32_t>(layer)];
  if (expert >= counts.size()) {
    held_ += expert + 1 - counts.size();
    if (held_ > kMaxModelExperts) return "makes more experts than any model has";
    counts.resize(expert + 1);
  }
  const auto sum = checked_add(counts[expert], count);
  if (!sum.has_value() && overflow == Overflow::kRefuse) return "makes a count exceed 64 bits";
  counts[expert] = sum.value_or(std::numeric_limits<std::uint64_t>::max());
  return {};
}

Result<ExpertProfile> ExpertCounts::profile(const ExpertShape& shape, std::string_view file) const {
  MOE_RETURN_IF_ERROR(check_expert_shape(shape, file));
  const auto beyond = [&](const char* what, std::uint64_t id, std::uint64_t has) {
    return corrupt(Where{.file = file},
                   "counts " + std::string(what) + " " + std::to_string(id) + ", the model has " +
                       std::to_string(has) + " " + what + "s",
                   "it is of another model");
  };
  ExpertProfile profile;
  profile.shape = shape;
  profile.layers.resize(shape.num_layers);
  for (LayerProfile& layer : profile.layers) layer.counts.resize(shape.num_experts);
  for (const auto& [index, counts] : layers_) {
    if (index >= shape.num_layers) return beyond("layer", index, shape.num_layers);
    if (counts.size() > shape.num_experts) {
      return beyond("expert", counts.size() - 1, shape.num_experts);
    }
    std::uint64_t uses = 0;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      const auto sum = checked_add(uses, counts[e]);
      if (!sum.has_value()) {
        return corrupt(Where{.file = file},
                       "the uses of layer " + std::to_string(index) + " exceed 64 bits");
      }
      uses = *sum;
      profile.layers[index].counts[e] = counts[e];
    }
  }
  return profile;
}

Result<ExpertShape> settle_shape(const ExpertShape& stated, const ExpertShape& known,
                                 std::string_view file) {
  ExpertShape shape;
  MOE_ASSIGN_OR_RETURN(shape.num_layers,
                       settle("layers", "--num-layers", stated.num_layers, known.num_layers, file));
  MOE_ASSIGN_OR_RETURN(shape.num_experts, settle("experts", "--num-experts", stated.num_experts,
                                                 known.num_experts, file));
  return shape;
}

}  // namespace moepack

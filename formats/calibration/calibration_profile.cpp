#include "formats/calibration/calibration_profile.h"

#include "formats/calibration/calibration.h"

namespace moepack {

Result<ExpertProfile> profile_of_calibration(const std::filesystem::path& directory) {
  MOE_ASSIGN_OR_RETURN(const CalibrationManifest manifest, read_calibration_manifest(directory));
  ExpertProfile profile;
  profile.model = manifest.model;
  profile.source_fingerprint = manifest.source_fingerprint;
  profile.shape = {manifest.num_layers, manifest.num_experts};
  profile.experts_per_token = manifest.experts_per_token;
  profile.tokens = manifest.tokens;
  MOE_RETURN_IF_ERROR(check_expert_shape(profile.shape, directory.string()));
  for (std::uint32_t l = 0; l < manifest.num_layers; ++l) {
    LayerProfile& layer = profile.layers.emplace_back();
    layer.counts.resize(manifest.num_experts);
    layer.weight_sums.resize(manifest.num_experts);
    layer.weight_square_sums.resize(manifest.num_experts);
    if (!manifest.layers[l].has_experts()) continue;
    MOE_ASSIGN_OR_RETURN(const LayerActivations routing,
                         read_layer_routing(directory, manifest, l));
    layer.counts = manifest.layers[l].samples;  // the reader has compared them with the routing
    for (std::size_t i = 0; i < routing.experts.size(); ++i) {
      const double weight = routing.weights[i];
      layer.weight_sums[routing.experts[i]] += weight;
      layer.weight_square_sums[routing.experts[i]] += weight * weight;
    }
  }
  return profile;
}

}  // namespace moepack

// Numbers of latent attention that its configuration implies, for every backend.
#pragma once

#include <cmath>

#include "formats/config/model_config.h"

namespace moepack {

// Epsilon of the norms of compressed rows, whatever rms_norm_eps says: transformers makes them
// without it.
constexpr float kLatentNormEps = 1e-6F;

// What scores are multiplied with: head_dim ^ -0.5, times YaRN's factor. head_dim is not 0.
inline float latent_softmax_scale(const ModelConfig& config) {
  const double factor = config.yarn.has_value() ? config.yarn->softmax_factor : 1.0;
  return static_cast<float>(factor / std::sqrt(static_cast<double>(config.head_dim)));
}

}  // namespace moepack

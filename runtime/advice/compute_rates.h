// How fast this machine computes one token of a model that need not be here: products with weights
// of its shapes and formats, whose bytes are made up.
#pragma once

#include <cstddef>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/advice/speed_prediction.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/kernels.h"

namespace moepack {

struct ComputeProbe {
  const Kernels* kernels = nullptr;
  ActivationType activations = ActivationType::kFloat32;
  std::size_t threads = 1;
  double milliseconds = 200;  // of each of the two measurements, at least one pass
};

// Runs the residents' matrices one after the other and the experts of a layer together, as a token
// does, over memory of at most 256 MiB and an eighth of what there is, so that the weights come
// from memory. Looks at the manifests of `dir` alone. kIo when memory is short. Other work on the
// machine lowers the rates.
Result<ComputeRates> measure_compute_rates(const ModelDir& dir, const ComputeProbe& probe);

}  // namespace moepack

// A range of a model's layers as a model of its own, for one of several devices.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/model/model_weights.h"
#include "runtime/placement/layer_split.h"

namespace moepack {

// The manifests of layers `range`, numbered from 0, with the embedding where they begin the model
// and the head where they end it. Its resident tensors are for counting bytes: their data are not
// to be loaded with it. Errors of architecture_of().
Result<ModelDir> stage_dir(const ModelDir& whole, const LayerRange& range);
// The weights of these layers; views into the whole's data, which outlives them.
ModelWeights stage_weights(const ModelWeights& whole, const LayerRange& range);

// [num_layers]: bytes of each layer's residents and, each in `slot_bytes`, its experts.
Result<std::vector<std::uint64_t>> layer_sizes(const ModelDir& whole, std::uint64_t slot_bytes);

}  // namespace moepack

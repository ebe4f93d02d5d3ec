// Which tensors a generated checkpoint has, and how their values are distributed.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/checkpoint_shape.h"
#include "bench/random_values.h"

namespace moepack::bench {

// All tensors of the text model in the order of the model: embedding, layers, final norm, head.
// Names and shapes: transformers' Qwen3_5Moe, and mlx-lm's conversion of it. kInvalidArgument when
// the form cannot hold the shape (kMlx4Bit needs inputs that are multiples of 64).
Result<std::vector<TensorSpec>> checkpoint_tensors(const ModelConfig& shape, CheckpointForm form);

// Vision and multi-token-prediction tensors, which a text runtime skips: small ones of each.
std::vector<TensorSpec> skipped_tensors(const ModelConfig& shape, CheckpointForm form);

// A tensor of one element that converters skip, for headers with many entries.
TensorSpec filler_tensor(std::uint64_t number, CheckpointForm form);

}  // namespace moepack::bench

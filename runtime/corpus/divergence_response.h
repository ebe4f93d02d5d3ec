// How much of an error in a layer's expert outputs arrives at the model's predictions.
//
// Quantized experts add an error to the residual stream. What that does depends on the layer: the
// stream grows, and later layers dampen or amplify the error. Smooth functions answer a small error
// with a Kullback-Leibler divergence in proportion to its square. Routers do not: the share of
// tokens that choose other experts is in proportion to the error itself. So, with e the squared
// error of what a layer's experts add to a token,
//     KLD = per_energy * e + per_amplitude * sqrt(e),
// and the divergences of several layers nearly add up. Both terms are measured: copies of a few
// windows, two for each layer, with random errors of two sizes behind that layer, go through the
// rest of the model beside the original, layer by layer, so that each expert is read once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/calibration.h"
#include "formats/model_dir.h"
#include "runtime/corpus/corpus_forward.h"

namespace moepack {

// The number of tokens of the original and all copies together.
std::uint64_t response_tokens(std::uint64_t num_layers, std::uint64_t tokens);

// Measures the response of every layer, [num_layers], with `windows` of `tokens`, each from a fresh
// state; the first eighth of each window is not scored. The result does not depend on the number of
// threads. `progress` is told how many layers are done.
Result<std::vector<DivergenceResponse>> measure_divergence_response(
    const ModelDir& model, const CorpusOptions& options, std::span<const std::int32_t> tokens,
    std::span<const TokenWindow> windows, const std::function<void(std::uint32_t)>& progress);

}  // namespace moepack

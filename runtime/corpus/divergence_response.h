// How much of an error in a layer's expert outputs arrives at the model's predictions.
//
// Quantized experts add an error to the residual stream; what that does depends on the layer: the
// stream grows, and later layers dampen or amplify. Smooth functions answer a small error with a
// Kullback-Leibler divergence in proportion to its square. Routers do not: in proportion to its
// size some token chooses other experts. So, with e the squared error of what a layer's experts add
// to a token,
//     KLD = per_energy * e + per_amplitude * sqrt(e),
// and layers add up nearly. Both terms are measured: copies of a few windows, two a layer, with
// random errors of two sizes behind that layer, go through the rest of the model beside the
// original, layer by layer, so that each expert is read once.
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

// Tokens of the original and all copies together.
std::uint64_t response_tokens(std::uint64_t num_layers, std::uint64_t tokens);

// [num_layers]. `windows` of `tokens`, each from a fresh state; the first eighth of each is not
// scored. The same on any number of threads. `progress`: layers done.
Result<std::vector<DivergenceResponse>> measure_divergence_response(
    const ModelDir& model, const CorpusOptions& options, std::span<const std::int32_t> tokens,
    std::span<const TokenWindow> windows, const std::function<void(std::uint32_t)>& progress);

}  // namespace moepack

// Whether a backend's kernels can compute a model: asked when it is opened, because kernels have no
// way to report an error.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/model/activation_type.h"
#include "runtime/model/kernels.h"

namespace moepack {

// kUnsupported, with the first matrix of the residents, the overlays or the pack whose format
// `kernels` does not know.
Status check_kernel_support(const Kernels& kernels, const ModelDir& model);
// The same for kernels that go by a name and know these formats.
Status check_format_support(std::string_view kernels,
                            const std::function<bool(const WeightFormat&)>& knows,
                            const ModelDir& model);

// The regime of few rows ends with so many (kernels.h).
constexpr std::uint32_t kFewTokens = 6;

// Whether the bits of a token's results are the same whatever is computed together with it: with
// the reference's products; otherwise where every matrix is of a plain format, or of one whose
// products take `activations` in bytes. Products of floats with quantized weights have two regimes,
// of few rows and of many (kernels.h).
bool is_batch_invariant(const Kernels& kernels, ActivationType activations, const ModelDir& model);

}  // namespace moepack

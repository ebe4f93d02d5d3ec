// How long a quantization will take, told by quantizing one expert of random numbers.
#pragma once

#include <cstddef>

#include "convert/quantize/quantize_plan.h"

namespace moepack {

// Seconds of the whole job with `threads` threads, reading and writing not counted: matrices of the
// model's shape are quantized once, and the inputs of an average expert are added up in part. A few
// seconds for the largest shapes.
double estimate_quantize_seconds(const QuantizePlan& plan, const QuantizeOptions& options,
                                 std::size_t threads);

}  // namespace moepack

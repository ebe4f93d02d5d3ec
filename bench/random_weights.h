// Random weights that are numbers: what kernels are timed with.
#pragma once

#include <cstddef>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

// codes: whole blocks or rows of `format`; scales: bfloat16, or binary16 where the format has that,
// empty where it has none of its own. The same bytes in every run.
void fill_random(const WeightFormat& format, std::span<std::byte> codes,
                 std::span<std::byte> scales);

}  // namespace moepack

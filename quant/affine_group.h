// The kernels of the affine quantizer for one group: its range, its codes, its packed words. The
// scalar functions define the results; the others give the same bits. All are pure and may be
// called from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moepack {

struct AffineGroupKernels {
  // The smallest and the largest of n finite values, n > 0. A zero may come with either sign.
  void (*range)(const float* values, std::size_t n, float& low, float& high);
  // codes[i] = clamp(round((values[i] - bias) / scale), 0, max_code), ties to even, a NaN gives 0.
  void (*codes)(const float* values, std::size_t n, float bias, float scale, float max_code,
                std::uint8_t* codes);
};

const AffineGroupKernels& scalar_affine_kernels();
// nullptr where the compiler's target or this processor lacks AVX2.
const AffineGroupKernels* avx2_affine_kernels();
// The fastest kernels that this processor runs.
const AffineGroupKernels& affine_kernels();

// Writes codes as a little-endian bit stream of bits / 8 bytes a code, where `bits` is 2, 3, 4, 5,
// 6 or 8. Each code is below 2^bits, and their number is a multiple of 8.
void pack_codes(std::span<const std::uint8_t> codes, std::uint32_t bits, std::byte* out);

}  // namespace moepack

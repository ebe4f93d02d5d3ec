// One group of the affine quantizer as kernels: its range, its codes, its packed words. The scalar
// functions define the results; the others give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moepack {

struct AffineGroupKernels {
  // Smallest and largest of n finite values, n > 0. Of zeros either sign may be returned.
  void (*range)(const float* values, std::size_t n, float& low, float& high);
  // codes[i] = clamp(round((values[i] - bias) / scale), 0, max_code), ties to even, a NaN gives 0.
  void (*codes)(const float* values, std::size_t n, float bias, float scale, float max_code,
                std::uint8_t* codes);
};

const AffineGroupKernels& scalar_affine_kernels();
// nullptr where the compiler's target or this processor lacks AVX2.
const AffineGroupKernels* avx2_affine_kernels();
// The fastest that this processor runs.
const AffineGroupKernels& affine_kernels();

// Writes codes (each below 2^bits; their number a multiple of 8) as a little-endian bit stream,
// bits being 2, 3, 4, 5, 6 or 8: bits / 8 bytes a code.
void pack_codes(std::span<const std::uint8_t> codes, std::uint32_t bits, std::byte* out);

}  // namespace moepack

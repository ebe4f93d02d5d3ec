#include "quant/affine_group.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

void range_scalar(const float* values, std::size_t n, float& low, float& high) {
  low = values[0];
  high = values[0];
  for (std::size_t i = 1; i < n; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
}

void codes_scalar(const float* values, std::size_t n, float bias, float scale, float max_code,
                  std::uint8_t* codes) {
  for (std::size_t i = 0; i < n; ++i) {
    const float code = std::nearbyint((values[i] - bias) / scale);
    codes[i] = code > 0.0F ? static_cast<std::uint8_t>(std::min(code, max_code)) : std::uint8_t{0};
  }
}

// Moves eight codes, one in each byte, together: first pairs, then pairs of pairs, then the halves.
template <std::uint32_t kBits>
std::uint64_t gather_eight(std::uint64_t x) {
  constexpr std::uint64_t kBytes = 0x00ff00ff00ff00ff;
  constexpr std::uint64_t kShorts = 0x0000ffff0000ffff;
  constexpr std::uint64_t kWord = 0x00000000ffffffff;
  x = (x & kBytes) | (((x >> 8) & kBytes) << kBits);
  x = (x & kShorts) | (((x >> 16) & kShorts) << (2 * kBits));
  return (x & kWord) | ((x >> 32) << (4 * kBits));
}

template <std::uint32_t kBits>
void pack_bits(std::span<const std::uint8_t> codes, std::byte* out) {
  for (std::size_t i = 0; i < codes.size(); i += 8, out += kBits) {
    const auto eight = gather_eight<kBits>(load_le<std::uint64_t>(codes.data() + i));
    std::memcpy(out, &eight, kBits);
  }
}

}  // namespace

const AffineGroupKernels& scalar_affine_kernels() {
  static constexpr AffineGroupKernels kKernels{range_scalar, codes_scalar};
  return kKernels;
}

const AffineGroupKernels& affine_kernels() {
  static const AffineGroupKernels* const kBest =
      avx2_affine_kernels() != nullptr ? avx2_affine_kernels() : &scalar_affine_kernels();
  return *kBest;
}

void pack_codes(std::span<const std::uint8_t> codes, std::uint32_t bits, std::byte* out) {
  assert(codes.size() % 8 == 0);
  switch (bits) {
    case 2:
      return pack_bits<2>(codes, out);
    case 3:
      return pack_bits<3>(codes, out);
    case 4:
      return pack_bits<4>(codes, out);
    case 5:
      return pack_bits<5>(codes, out);
    case 6:
      return pack_bits<6>(codes, out);
    default:
      assert(bits == 8);
      return pack_bits<8>(codes, out);
  }
}

}  // namespace moepack

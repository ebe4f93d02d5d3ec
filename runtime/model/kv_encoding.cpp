#include "runtime/model/kv_encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace moepack {
namespace {

// E4M3: bias 7, three bits of mantissa, the smallest normal number 2^-6.
constexpr float kLeastNormal = 0x1p-6F;
constexpr float kSubnormalsPerUnit = 0x1p9F;
constexpr std::uint32_t kMostCode = 0x7e;
constexpr std::uint32_t kDroppedBits = 20;  // of float32's 23 bits of mantissa
constexpr std::uint32_t kBiasStep = (127U - 7U) << 3U;

std::uint32_t magnitude_code(float magnitude) {
  if (!(magnitude < kE4m3Most)) return kMostCode;
  if (magnitude < kLeastNormal) {
    // The sum has the subnormal's number in its last bits: float32 rounds to nearest even.
    constexpr float kShift = 0x1p23F;
    return std::bit_cast<std::uint32_t>(magnitude * kSubnormalsPerUnit + kShift) & 0xfU;
  }
  std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude);
  bits += ((1U << (kDroppedBits - 1)) - 1U) + ((bits >> kDroppedBits) & 1U);
  return std::min(kMostCode, (bits >> kDroppedBits) - kBiasStep);
}

}  // namespace

std::string_view kv_encoding_name(KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kBfloat16:
      return "bf16";
    case KvEncoding::kFp8:
      return "fp8";
    case KvEncoding::kFloat16:
      return "f16";
    default:
      return "f32";
  }
}

Result<KvEncoding> parse_kv_encoding(std::string_view name) {
  for (const KvEncoding encoding :
       {KvEncoding::kFloat32, KvEncoding::kBfloat16, KvEncoding::kFloat16, KvEncoding::kFp8}) {
    if (name == kv_encoding_name(encoding)) return encoding;
  }
  return invalid_argument("keys and values have no encoding called \"" + printable(name, 32) + "\"",
                          "known are f32, f16, bf16 and fp8");
}

std::uint8_t e4m3_from_float(float value) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31U;
  return static_cast<std::uint8_t>(sign << 7U | magnitude_code(std::fabs(value)));
}

float e4m3_scale(const float* values, std::size_t count) {
  float largest = 0.0F;
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(values[i]);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    largest = std::max(largest, magnitude);
  }
  return finite ? largest / kE4m3Most : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace moepack

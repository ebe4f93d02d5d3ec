// How keys and values are encoded, and the scalar definition of each encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

// The numbers stand in saved sequences and are never given away again.
enum class KvEncoding : std::uint32_t {
  kFloat32 = 0,
  kBfloat16 = 1,
  // OCP 8-bit E4M3 (OFP8 specification 1.0) with a float32 scale for each head and position.
  kFp8 = 2,
  // IEEE 754 binary16: eight times as exact as kBfloat16, but what is beyond 65504 becomes
  // infinite: a value ends the sequence, a key does or is seen by nobody.
  kFloat16 = 3,
};

// The largest value of E4M3.
constexpr float kE4m3Most = 448.0F;

// "f32", "bf16", "fp8", "f16": on the command line and in messages.
std::string_view kv_encoding_name(KvEncoding encoding);
// kInvalidArgument for any other name.
Result<KvEncoding> parse_kv_encoding(std::string_view name);

// Bytes of one encoded value.
constexpr std::uint64_t kv_value_bytes(KvEncoding encoding) {
  return encoding == KvEncoding::kFloat32 ? 4 : encoding == KvEncoding::kFp8 ? 1 : 2;
}
// Bytes of the scale of one head's values at one position.
constexpr std::uint64_t kv_scale_bytes(KvEncoding encoding) {
  return encoding == KvEncoding::kFp8 ? sizeof(float) : 0;
}

// The nearest E4M3 number, halves to the even code; what is larger than 448, infinite included,
// becomes 448. The code of NaN (0x7f, 0xff) is never given: NaN becomes 448 with its sign.
std::uint8_t e4m3_from_float(float value);

// The scale of `count` values of a head: their largest magnitude / 448; 0 when all are zero (or so
// small that the quotient is); NaN when some value is not finite.
float e4m3_scale(const float* values, std::size_t count);

// The code of `value` under a scale of e4m3_scale: the code of the float32 quotient; 0 under a
// scale of 0.
inline std::uint8_t e4m3_code(float value, float scale) {
  return scale == 0.0F ? 0 : e4m3_from_float(value / scale);
}

}  // namespace moepack

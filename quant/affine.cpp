#include "quant/affine.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "formats/bytes.h"
#include "formats/qcodec.h"

namespace moepack {
namespace {

struct ScaleAndBias {
  float scale;
  float bias;
};

ScaleAndBias choose_scale(std::span<const float> group, std::uint32_t max_code) {
  float low = group[0];
  float high = group[0];
  for (float w : group) {
    low = std::min(low, w);
    high = std::max(high, w);
  }
  const bool low_is_edge = std::fabs(low) > std::fabs(high);
  float scale = std::max((high - low) / static_cast<float>(max_code), 1e-7F);
  if (!low_is_edge) scale = -scale;
  const float edge = low_is_edge ? low : high;
  const float edge_code = std::nearbyint(edge / scale);
  if (edge_code == 0.0F) return {scale, 0.0F};
  return {edge / edge_code, edge};
}

void store_scale(DType type, std::byte* at, float value) {
  if (type == DType::kF16) {
    store_le(at, f32_to_f16(value));
  } else {
    store_le(at, f32_to_bf16(value));
  }
}

}  // namespace

void encode_affine_row(const WeightFormat& format, std::span<const float> row,
                       const AffineRowOut& out) {
  assert(is_affine(format) && row.size() % format.group_size == 0);
  const std::uint32_t bits = qformat_info(format.id).bits;
  const std::uint32_t max_code = (1U << bits) - 1U;
  const std::size_t scale_bytes = dtype_bits(format.scale_type) / 8;
  std::fill(out.codes.begin(), out.codes.end(), std::byte{0});
  for (std::size_t start = 0; start < row.size(); start += format.group_size) {
    const std::span<const float> group = row.subspan(start, format.group_size);
    const ScaleAndBias chosen = choose_scale(group, max_code);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const float code = std::nearbyint((group[i] - chosen.bias) / chosen.scale);
      const float clipped = std::clamp(code, 0.0F, static_cast<float>(max_code));
      pack_code(out.codes.data(), start + i, bits, static_cast<std::uint32_t>(clipped));
    }
    const std::size_t at = start / format.group_size * scale_bytes;
    store_scale(format.scale_type, out.scales.data() + at, chosen.scale);
    store_scale(format.scale_type, out.biases.data() + at, chosen.bias);
  }
}

}  // namespace moepack

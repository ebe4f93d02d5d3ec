#include "quant/affine.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "formats/base/bytes.h"
#include "quant/affine_group.h"

namespace moepack {
namespace {

constexpr std::size_t kMaxGroup = 128;

struct ScaleAndBias {
  float scale;
  float bias;
};

ScaleAndBias choose_scale(float low, float high, std::uint32_t max_code) {
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
  const AffineGroupKernels& kernels = affine_kernels();
  std::array<std::uint8_t, kMaxGroup> codes{};
  for (std::size_t start = 0; start < row.size(); start += format.group_size) {
    const std::span<const float> group = row.subspan(start, format.group_size);
    float low = 0;
    float high = 0;
    kernels.range(group.data(), group.size(), low, high);
    const ScaleAndBias chosen = choose_scale(low, high, max_code);
    kernels.codes(group.data(), group.size(), chosen.bias, chosen.scale,
                  static_cast<float>(max_code), codes.data());
    pack_codes(std::span(codes).first(group.size()), bits, out.codes.data() + start * bits / 8);
    const std::size_t at = start / format.group_size * scale_bytes;
    store_scale(format.scale_type, out.scales.data() + at, chosen.scale);
    store_scale(format.scale_type, out.biases.data() + at, chosen.bias);
  }
}

}  // namespace moepack

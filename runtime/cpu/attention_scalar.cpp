// The attention kernels in scalar C++: the definition that the SIMD tables meet to the bit.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/base/dtype.h"
#include "runtime/model/attention_kernels.h"

namespace moepack {
namespace {

constexpr std::size_t kPartials = 16;

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23U);
}

// e^x as simd_exponential.inc computes it, operation by operation.
float exponential(float x) {
  if (std::isnan(x)) return x;
  x = std::clamp(x, -104.0F, 89.0F);
  const float n = std::nearbyint(x * 1.44269504F);
  float r = std::fma(n, -0.693145751953125F, x);
  r = std::fma(n, -1.42860677e-6F, r);
  float p = 1.0F / 5040.0F;
  for (const float term :
       {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F}) {
    p = std::fma(p, r, term);
  }
  const int power = static_cast<int>(n);
  const int half = power >> 1;
  return p * power_of_two(half) * power_of_two(power - half);
}

// Encoded element `index`; of kFp8 2^-8 times its value. The codes of NaN, which nothing writes,
// are read as 480.
float decode(KvEncoding encoding, const std::byte* at, std::size_t index) {
  if (encoding == KvEncoding::kFloat32) {
    float value = 0.0F;
    std::memcpy(&value, at + 4 * index, 4);
    return value;
  }
  if (encoding != KvEncoding::kFp8) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at + 2 * index, 2);
    return encoding == KvEncoding::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  const auto code = std::to_integer<std::uint32_t>(at[index]);
  return f16_to_f32(static_cast<std::uint16_t>((code & 0x80U) << 8U | (code & 0x7fU) << 7U));
}

float scale_of(const KvBlock& block, const float* scales, std::size_t position) {
  return block.encoding == KvEncoding::kFp8 ? scales[position] * 256.0F : 1.0F;
}

// sum over i < count, in order, of factors[i] * element i * kKvGroup of `from`.
float multiply(KvEncoding encoding, const float* factors, const std::byte* from,
               std::size_t count) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < count; ++i) {
    sum = std::fma(factors[i], decode(encoding, from, i * kKvGroup), sum);
  }
  return sum;
}

// The place of lane `lane` of group `group` of a part whose groups have `rows` rows.
const std::byte* lane_of(const KvBlock& block, const std::byte* part, std::size_t lane,
                         std::size_t rows) {
  const std::size_t group = lane / kKvGroup;
  return part + (group * rows * kKvGroup + lane % kKvGroup) * kv_value_bytes(block.encoding);
}

void attend_row(const AttentionCall& call, std::size_t row) {
  const KvBlock& block = call.block;
  const std::size_t seen = call.seen[row];
  const std::size_t hidden = call.hidden == nullptr ? 0 : call.hidden[row];
  float* weights = call.weights + row * kKvBlock;
  float most = -std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < seen; ++j) {
    const std::byte* key = lane_of(block, block.keys, j, call.head_dim);
    weights[j] = multiply(block.encoding, call.queries[row], key, call.head_dim) *
                 scale_of(block, block.key_scales, j);
    if (j < hidden) weights[j] = -std::numeric_limits<float>::infinity();
    most = weights[j] > most ? weights[j] : most;
  }
  std::array<float, kPartials> sums{};
  for (std::size_t j = 0; j < seen; ++j) {
    const float weight = exponential(weights[j] - most);
    sums[j % kPartials] += weight;
    weights[j] = weight * scale_of(block, block.value_scales, j);
  }
  for (std::size_t half = kPartials / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  float* result = call.results + row * attention_result_floats(call.value_dim);
  result[0] = most;
  result[1] = sums[0];
  for (std::size_t d = 0; d < align_up(call.value_dim, kKvGroup); ++d) {
    const std::byte* value = lane_of(block, block.values, d, block.positions);
    result[kAttentionHead + d] = multiply(block.encoding, weights, value, seen);
  }
}

void attend(const AttentionCall& call) {
  for (std::size_t row = 0; row < call.rows; ++row) {
    if (call.seen[row] != 0) attend_row(call, row);
  }
}

void merge(const float* from, std::size_t value_dim, float* to) {
  const float top = from[0] > to[0] ? from[0] : to[0];
  const float keep = exponential(to[0] - top);
  const float take = exponential(from[0] - top);
  to[0] = top;
  to[1] = std::fma(from[1], take, to[1] * keep);
  for (std::size_t i = kAttentionHead; i < attention_result_floats(value_dim); ++i) {
    to[i] = std::fma(from[i], take, to[i] * keep);
  }
}

void finish(const float* result, const float* gate, std::size_t value_dim, float* out) {
  const float inverse = 1.0F / result[1];
  for (std::size_t i = 0; i < value_dim; ++i) {
    out[i] = result[kAttentionHead + i] * inverse;
    if (gate != nullptr) out[i] /= 1.0F + exponential(0.0F - gate[i]);
  }
}

void rotate(float* head, const float* cosine, const float* sine, std::size_t half) {
  for (std::size_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosine[i] - b * sine[i];
    head[i + half] = b * cosine[i] + a * sine[i];
  }
}

constexpr AttentionKernels kAttention{
    .attend = attend, .merge = merge, .finish = finish, .rotate = rotate};

}  // namespace

const AttentionKernels& scalar_attention() { return kAttention; }

}  // namespace moepack

#include "runtime/vulkan/delta_state.h"

#include <algorithm>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

// Rows of a column of S, in whole vectors of eight lanes.
constexpr std::uint64_t kKeyPad = 32;

std::uint64_t key_pad(const DeltaStateShape& shape) { return align_up(shape.key_dim, kKeyPad); }

// Consecutive channels of the convolution, as the windows of V heads have them.
struct Run {
  std::uint64_t channel;
  std::uint64_t at;  // in the head's span
  std::uint64_t count;
};

// Calls visit(float of the window in the device's form, float of conv, count) for each run of each
// head's window.
template <typename Visit>
void for_each_run(const DeltaStateShape& shape, const Visit& visit) {
  const std::uint64_t dk = shape.key_dim;
  const std::uint64_t dv = shape.value_dim;
  const std::uint64_t span = 2 * dk + dv;
  const std::uint64_t windows = shape.value_heads * dv * key_pad(shape);
  for (std::uint64_t h = 0; h < shape.value_heads; ++h) {
    const std::uint64_t key_head =
        shape.is_tiled ? h % shape.key_heads : h / (shape.value_heads / shape.key_heads);
    const Run runs[3] = {{key_head * dk, 0, dk},
                         {(shape.key_heads + key_head) * dk, dk, dk},
                         {std::uint64_t{2} * shape.key_heads * dk + h * dv, 2 * dk, dv}};
    for (std::uint64_t j = 0; j + 1 < shape.taps; ++j) {
      for (const Run& run : runs) {
        visit(windows + (h * (shape.taps - 1) + j) * span + run.at,
              j * shape.channels() + run.channel, run.count);
      }
    }
  }
}

}  // namespace

std::uint64_t DeltaStateShape::device_floats() const {
  const std::uint64_t span = 2 * std::uint64_t{key_dim} + value_dim;
  return std::uint64_t{value_heads} * (value_dim * key_pad(*this) + (taps - 1) * span);
}

void pack_delta_state(const DeltaStateShape& shape, std::span<const float> conv,
                      std::span<const float> delta, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  const std::uint64_t pad = key_pad(shape);
  for (std::uint64_t i = 0; i < delta.size(); ++i) {
    const std::uint64_t j = i % shape.value_dim;
    const std::uint64_t row = i / shape.value_dim % shape.key_dim;
    const std::uint64_t head = i / shape.value_dim / shape.key_dim;
    out[(head * shape.value_dim + j) * pad + row] = delta[i];
  }
  for_each_run(shape, [&](std::uint64_t at, std::uint64_t channel, std::uint64_t count) {
    std::copy_n(conv.begin() + static_cast<std::ptrdiff_t>(channel), count,
                out.begin() + static_cast<std::ptrdiff_t>(at));
  });
}

void unpack_delta_state(const DeltaStateShape& shape, std::span<const float> state,
                        std::span<float> conv, std::span<float> delta) {
  const std::uint64_t pad = key_pad(shape);
  for (std::uint64_t i = 0; i < delta.size(); ++i) {
    const std::uint64_t j = i % shape.value_dim;
    const std::uint64_t row = i / shape.value_dim % shape.key_dim;
    const std::uint64_t head = i / shape.value_dim / shape.key_dim;
    delta[i] = state[(head * shape.value_dim + j) * pad + row];
  }
  for_each_run(shape, [&](std::uint64_t at, std::uint64_t channel, std::uint64_t count) {
    std::copy_n(state.begin() + static_cast<std::ptrdiff_t>(at), count,
                conv.begin() + static_cast<std::ptrdiff_t>(channel));
  });
}

}  // namespace moepack

#include "runtime/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moepack {
namespace {

// The pair that turns `turns` times within the positions that the model was trained with.
double pair_of(const YarnSpec& yarn, const HeadSizes& heads, double turns) {
  const double positions = yarn.original_positions;
  return heads.rotary_dim * std::log(positions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(heads.rope_theta));
}

// The pairs between which frequencies go from kept to divided.
struct Ramp {
  double low = 0;
  double high = 0;

  // How far pair `i` is divided: 0 … 1.
  double at(double i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }
};

Ramp ramp_of(const YarnSpec& yarn, const HeadSizes& heads) {
  Ramp ramp{.low = pair_of(yarn, heads, yarn.beta_fast),
            .high = pair_of(yarn, heads, yarn.beta_slow)};
  if (yarn.truncate) ramp = {.low = std::floor(ramp.low), .high = std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, static_cast<double>(heads.rotary_dim) - 1);
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

std::vector<float> frequencies(const std::optional<YarnSpec>& yarn, const HeadSizes& heads) {
  std::vector<float> values(heads.rotary_dim / 2);
  const Ramp ramp = yarn.has_value() ? ramp_of(*yarn, heads) : Ramp{};
  for (std::size_t i = 0; i < heads.rotated_pairs; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / heads.rotary_dim;
    double frequency = std::pow(heads.rope_theta, -exponent);
    if (yarn.has_value()) {
      const double divided = ramp.at(static_cast<double>(i));
      frequency = frequency / yarn->factor * divided + frequency * (1 - divided);
    }
    values[i] = static_cast<float>(frequency);
  }
  return values;
}

}  // namespace

Rope::Rope(const ModelConfig& config) : Rope(config, config.heads_of({})) {}

Rope::Rope(const ModelConfig& config, const HeadSizes& heads)
    : inverse_frequency_(frequencies(config.yarn, heads)),
      amplitude_(config.yarn.has_value() ? static_cast<float>(config.yarn->attention_factor) : 1),
      interleaved_(config.rope_interleaved) {}

void Rope::fill(std::size_t position, std::span<float> rotation) const {
  const std::size_t half = pairs();
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inverse_frequency_[i];
    rotation[i] = std::cos(angle) * amplitude_;
    rotation[half + i] = std::sin(angle) * amplitude_;
  }
}

void Rope::rotate(const AttentionKernels* kernels, std::span<const float> rotation,
                  float* head) const {
  const std::size_t half = pairs();
  const float* cosine = rotation.data();
  const float* sine = cosine + half;
  if (!interleaved_ && kernels != nullptr) return kernels->rotate(head, cosine, sine, half);
  const std::size_t step = interleaved_ ? 2 : 1;
  const std::size_t other = interleaved_ ? 1 : half;
  for (std::size_t i = 0; i < half; ++i) {
    float& first = head[step * i];
    float& second = head[step * i + other];
    const float a = first;
    const float b = second;
    first = a * cosine[i] - b * sine[i];
    second = b * cosine[i] + a * sine[i];
  }
}

}  // namespace moepack

// Made-up recorded inputs of a layer, and one of its experts.
#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "formats/base/dtype.h"
#include "formats/calibration/calibration.h"
#include "quant/expert_statistics.h"
#include "tests/support/random_matrix.h"

namespace moepack::test {

constexpr std::uint32_t kExperts = 5;
constexpr std::size_t kHidden = 64;
constexpr std::size_t kWidth = 96;

// Expert 4 is never chosen.
inline LayerActivations random_activations(std::uint64_t tokens) {
  LayerActivations a;
  a.tokens = tokens;
  a.hidden_size = kHidden;
  a.experts_per_token = 2;
  const Matrix x = testing::random_inputs(kHidden, tokens, 1);
  for (float v : x.reshaped()) a.inputs.push_back(f32_to_bf16(v));
  std::mt19937 random(2);
  std::uniform_int_distribution<std::uint32_t> expert(0, 3);
  std::uniform_real_distribution<float> share(0.5F, 1.0F);
  for (std::uint64_t t = 0; t < tokens; ++t) {
    const std::uint32_t first = expert(random);
    a.experts.push_back(static_cast<std::uint16_t>(first));
    a.experts.push_back(static_cast<std::uint16_t>((first + 1) % 4));
    const float p = share(random);
    a.weights.push_back(p);
    a.weights.push_back(1 - p);
  }
  return a;
}

inline const ParallelFor kSerial = [](std::size_t count,
                                      const std::function<void(std::size_t)>& work) {
  for (std::size_t i = 0; i < count; ++i) work(i);
};

inline ExpertMatrices random_expert() {
  ExpertMatrices w{.width = kWidth, .gate = {}, .up = {}, .down = {}};
  w.gate = 4 * testing::random_weights(kWidth, kHidden, 3);
  w.up = 4 * testing::random_weights(kWidth, kHidden, 4);
  w.down = testing::random_weights(kHidden, kWidth, 5);
  return w;
}

}  // namespace moepack::test

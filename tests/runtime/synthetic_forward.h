// A "model" whose logits are a hash of (salt, index in the window, token), exact in float, so that
// another program can compute the expected scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/score/logits_sink.h"

namespace moepack::test {

inline std::uint32_t hash32(std::uint32_t x) {
  x ^= x >> 16U;
  x *= 0x7feb352dU;
  x ^= x >> 15U;
  x *= 0x846ca68bU;
  x ^= x >> 16U;
  return x;
}

constexpr std::size_t kSyntheticVocab = 11;  // odd: rows of base files are padded

// Multiples of 1/512 in [-4, 4).
inline std::vector<float> synthetic_logits(std::uint32_t salt, std::size_t index,
                                           std::int32_t token) {
  std::vector<float> logits;
  for (std::uint32_t i = 0; i < kSyntheticVocab; ++i) {
    const auto key = salt * 1000003U + static_cast<std::uint32_t>(index) * 4099U +
                     static_cast<std::uint32_t>(token) * 67U + i;
    logits.push_back(static_cast<float>(hash32(key) >> 20U) / 512.0F - 4.0F);
  }
  return logits;
}

inline std::vector<std::int32_t> synthetic_tokens(std::size_t count = 45) {
  std::vector<std::int32_t> tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(hash32(7 * i + 3) % kSyntheticVocab));
  }
  return tokens;
}

inline WindowForward synthetic_forward(std::uint32_t salt) {
  return [salt](std::span<const std::int32_t> tokens, std::size_t first, const LogitsSink& sink) {
    for (std::size_t i = first; i < tokens.size(); ++i) {
      MOE_RETURN_IF_ERROR(sink(i, synthetic_logits(salt, i, tokens[i])));
    }
    return Status::ok();
  };
}

}  // namespace moepack::test

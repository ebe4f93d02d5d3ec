// What the stages of an ordered list hand to each other word by word (shaders/handed.glsl), and so
// each in memory of its own, in which nothing was written since the list began. Memory for every
// layer of a batch of few rows; only addresses, it touches no device.
#pragma once

#include <cstdint>

#include "formats/config/model_config.h"
#include "runtime/vulkan/device_scratch.h"

namespace moepack {

class HandedScratch {
 public:
  // Kinds of experts in a layer whose sums are added one after another, each to memory of its own.
  static constexpr std::uint32_t kMostKinds = 4;

  // Bytes for batches of up to `rows` rows.
  static std::uint64_t bytes(const ModelConfig& config, std::uint64_t rows);

  // Memory at base.handed, of bytes(config, rows). The configuration outlives it.
  HandedScratch(const ModelConfig& config, const DeviceScratch& base)
      : config_(config), base_(base) {}

  // The residual stream before the first layer: [rows, H].
  std::uint64_t first_hidden() const { return base_.handed; }
  // What is MOE_NOT_HANDED when a list of `rows` rows begins: all but that. Multiples of 256 bytes.
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };
  Range cleared(std::uint64_t rows) const;
  // The scratch as a layer of a list of `rows` rows has it, but for the residual stream, which the
  // layer before handed on.
  DeviceScratch of_layer(std::uint32_t layer, std::uint64_t rows) const;
  // The residual stream of a layer: behind its mixer, and behind each kind of its experts.
  std::uint64_t hidden_behind_mixer(std::uint32_t layer, std::uint64_t rows) const;
  std::uint64_t hidden_behind(std::uint32_t kind, std::uint32_t layer, std::uint64_t rows) const;

  // Where a layer's logits and that of its shared expert's gate lie, whatever the number of rows:
  // [kFewRows, E] and [kFewRows].
  static std::uint64_t router_logits(const ModelConfig& config, const DeviceScratch& base,
                                     std::uint32_t layer);
  static std::uint64_t shared_logits(const ModelConfig& config, const DeviceScratch& base,
                                     std::uint32_t layer);

 private:
  const ModelConfig& config_;
  const DeviceScratch& base_;
};

}  // namespace moepack

// What the stages of an ordered list hand to each other word by word (shaders/handed.glsl), and so
// each in memory of its own, in which nothing was written since the list began. Memory for every
// layer of a batch of few rows; only addresses, it touches no device.
#pragma once

#include <array>
#include <cstdint>

#include "formats/config/model_config.h"
#include "runtime/vulkan/device_scratch.h"

namespace moepack {

// A layer of an ordered list.
struct HandedLayer {
  // Kinds of experts whose sums are added one after another, each to memory of its own.
  static constexpr std::uint32_t kMostKinds = 4;

  // The scratch, but for the residual stream, which the layer before handed on.
  DeviceScratch scratch;
  // The residual stream [rows, H] behind the mixer, and behind each kind of experts.
  std::uint64_t behind_mixer = 0;
  std::array<std::uint64_t, kMostKinds> behind_kinds{};
};

class HandedScratch {
 public:
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
  // A layer of a list of `rows` rows.
  HandedLayer of_layer(std::uint32_t layer, std::uint64_t rows) const;

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

// What a sequence leaves on the device: keys and values, and recurrent states, of each layer in an
// allocation of its own. Their layouts are the kernels' (shaders/kv.glsl, shaders/delta_args.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/kv_encoding.h"
#include "runtime/model/sequence_state.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

struct VulkanStateShape {
  ModelConfig config;
  std::uint64_t context = 0;   // most tokens
  bool tiled_v_heads = false;  // DeltaNetWeights::tiled_v_heads
  KvEncoding kv_encoding = KvEncoding::kFloat32;
};

// Bytes of the states of one sequence; of the keys and values alone.
std::uint64_t vulkan_state_bytes(const VulkanStateShape& shape);
std::uint64_t vulkan_key_value_bytes(const VulkanStateShape& shape);

// Move-only. The device outlives it. Memory is taken for the whole context at once.
class VulkanState final : public SequenceState {
 public:
  // kIo when memory is short.
  static Result<std::unique_ptr<VulkanState>> create(VulkanDevice& device,
                                                     const VulkanStateShape& shape);

  std::uint64_t address(std::uint32_t layer) const { return layers_[layer].address(); }

  // Kernels start a sequence at position 0 from zeros, whatever lies there.
  void reset() override {}
  Result<std::unique_ptr<SequenceState>> copy(std::uint64_t tokens) const override;
  std::uint64_t memory_bytes() const override;
  bool has_recurrent() const override;
  DeltaForm delta_form() const override { return DeltaForm::kTokens; }
  std::uint64_t saved_bytes(std::uint64_t tokens) const override;
  Status save(std::uint64_t tokens, std::span<std::byte> bytes) const override;
  Status load(std::uint64_t tokens, std::span<const std::byte> bytes) override;
  std::uint64_t recurrent_bytes(std::uint64_t tokens) const override;
  Status save_recurrent(std::uint64_t tokens, std::span<std::byte> bytes) const override;
  Status load_recurrent(std::uint64_t tokens, std::span<const std::byte> bytes) override;

 private:
  VulkanState(VulkanDevice& device, const VulkanStateShape& shape)
      : device_(&device), shape_(shape) {}
  Status save_delta(const DeviceBuffer& layer, std::span<std::byte> out) const;
  Status load_delta(const DeviceBuffer& layer, std::span<const std::byte> in);
  std::uint64_t saved_layer_bytes(std::uint32_t layer, std::uint64_t tokens) const;
  bool is_recurrent(std::uint32_t layer) const {
    return !keeps_positions(shape_.config.layer_type(layer));
  }

  VulkanDevice* device_;
  VulkanStateShape shape_;
  std::vector<DeviceBuffer> layers_;
};

}  // namespace moepack

#include "runtime/vulkan/vulkan_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/model/layer_state.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/delta_state.h"

namespace moepack {
namespace {

// Bytes of the keys of one position, or of its values.
std::uint64_t row_bytes(const VulkanStateShape& shape) {
  return std::uint64_t{shape.config.num_kv_heads} * shape.config.head_dim *
         kv_value_bytes(shape.kv_encoding);
}

DeltaStateShape delta_shape(const ModelConfig& c) {
  return {.key_heads = c.linear_key_heads,
          .value_heads = c.linear_value_heads,
          .key_dim = c.linear_key_dim,
          .value_dim = c.linear_value_dim,
          .taps = c.linear_conv_taps};
}

std::uint64_t layer_bytes(const VulkanStateShape& shape, std::uint32_t layer) {
  if (shape.config.layer_type(layer) == LayerType::kFullAttention) {
    return 2 * row_bytes(shape) * shape.context;
  }
  return delta_state_floats(delta_shape(shape.config)) * sizeof(float);
}

}  // namespace

std::uint64_t vulkan_state_bytes(const VulkanStateShape& shape) {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < shape.config.num_layers; ++l) bytes += layer_bytes(shape, l);
  return bytes;
}

std::uint64_t vulkan_key_value_bytes(const VulkanStateShape& shape) {
  return 2 * row_bytes(shape) * shape.context * shape.config.full_attention_layers();
}

Result<std::unique_ptr<VulkanState>> VulkanState::create(VulkanDevice& device,
                                                         const VulkanStateShape& shape) {
  std::unique_ptr<VulkanState> state(new VulkanState(device, shape));
  for (std::uint32_t l = 0; l < shape.config.num_layers; ++l) {
    MOE_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                         device.allocate(layer_bytes(shape, l), MemoryKind::kDevice));
    state->layers_.push_back(std::move(buffer));
  }
  return state;
}

Result<std::unique_ptr<SequenceState>> VulkanState::copy(std::uint64_t tokens) const {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<VulkanState> other, create(*device_, shape_));
  CommandList list(*device_);
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    const bool has_keys = shape_.config.layer_type(l) == LayerType::kFullAttention;
    list.copy(layers_[l].handle(), 0, other->layers_[l].handle(), 0,
              has_keys ? 2 * row_bytes(shape_) * tokens : layer_bytes(shape_, l));
  }
  MOE_RETURN_IF_ERROR(device_->run(list));
  return std::unique_ptr<SequenceState>(std::move(other));
}

std::uint64_t VulkanState::memory_bytes() const {
  std::uint64_t bytes = 0;
  for (const DeviceBuffer& layer : layers_) bytes += layer.size();
  return bytes;
}

bool VulkanState::has_recurrent() const {
  return shape_.config.full_attention_layers() < shape_.config.num_layers;
}

std::uint64_t VulkanState::saved_layer_bytes(std::uint32_t layer, std::uint64_t tokens) const {
  if (shape_.config.layer_type(layer) == LayerType::kFullAttention) {
    return 2 * row_bytes(shape_) * tokens;
  }
  const ModelConfig& c = shape_.config;
  const std::uint64_t matrices =
      std::uint64_t{c.linear_value_heads} * c.linear_key_dim * c.linear_value_dim;
  return ((c.linear_conv_taps - 1) * conv_channels(c) + matrices) * sizeof(float);
}

std::uint64_t VulkanState::saved_bytes(std::uint64_t tokens) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) bytes += saved_layer_bytes(l, tokens);
  return bytes;
}

// On the device the keys and values of a position stand side by side; in a file all keys come
// first.
Status VulkanState::save(std::uint64_t tokens, std::span<std::byte> bytes) const {
  std::vector<std::byte> held;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    const std::span<std::byte> out = bytes.first(saved_layer_bytes(l, tokens));
    bytes = bytes.subspan(out.size());
    const std::uint64_t row = row_bytes(shape_);
    if (shape_.config.layer_type(l) == LayerType::kFullAttention) {
      held.resize(out.size());
      MOE_RETURN_IF_ERROR(device_->download(layers_[l], 0, held));
      for (std::uint64_t p = 0; p < tokens; ++p) {
        std::memcpy(out.data() + p * row, held.data() + 2 * p * row, row);
        std::memcpy(out.data() + (tokens + p) * row, held.data() + (2 * p + 1) * row, row);
      }
    } else {
      held.resize(layer_bytes(shape_, l));
      MOE_RETURN_IF_ERROR(device_->download(layers_[l], 0, held));
      delta_state_to_saved(delta_shape(shape_.config), tokens, held, out);
    }
  }
  return Status::ok();
}

Status VulkanState::load(std::uint64_t tokens, std::span<const std::byte> bytes) {
  std::vector<std::byte> held;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    const std::span<const std::byte> in = bytes.first(saved_layer_bytes(l, tokens));
    bytes = bytes.subspan(in.size());
    const std::uint64_t row = row_bytes(shape_);
    if (shape_.config.layer_type(l) == LayerType::kFullAttention) {
      held.resize(in.size());
      for (std::uint64_t p = 0; p < tokens; ++p) {
        std::memcpy(held.data() + 2 * p * row, in.data() + p * row, row);
        std::memcpy(held.data() + (2 * p + 1) * row, in.data() + (tokens + p) * row, row);
      }
    } else {
      held.resize(layer_bytes(shape_, l));
      saved_to_delta_state(delta_shape(shape_.config), in, held);
    }
    MOE_RETURN_IF_ERROR(device_->upload(layers_[l], 0, held));
  }
  return Status::ok();
}

}  // namespace moepack

#include "runtime/vulkan/vulkan_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "formats/base/bytes.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/delta_state.h"

namespace moepack {
namespace {

// What a layer keeps of a position: keys and values as long as each other, or one compressed row.
struct PositionRows {
  std::uint64_t bytes = 0;  // of a row
  std::uint64_t count = 0;

  std::uint64_t total() const { return bytes * count; }
};
PositionRows position_rows(const VulkanStateShape& shape, std::uint32_t layer) {
  const ModelConfig& c = shape.config;
  const std::uint64_t value_bytes = kv_value_bytes(shape.kv_encoding);
  if (const auto* full = std::get_if<FullAttentionSpec>(&c.layers[layer].mixer)) {
    const HeadSizes heads = c.heads_of(*full);
    return {.bytes = std::uint64_t{heads.kv_heads} * heads.head_dim * value_bytes, .count = 2};
  }
  return {.bytes = (std::uint64_t{c.kv_rank} + c.rotary_dim) * value_bytes, .count = 1};
}

DeltaStateShape delta_shape(const VulkanStateShape& shape) {
  const ModelConfig& c = shape.config;
  return {.key_heads = c.linear_key_heads,
          .value_heads = c.linear_value_heads,
          .key_dim = c.linear_key_dim,
          .value_dim = c.linear_value_dim,
          .taps = c.linear_conv_taps,
          .is_tiled = shape.tiled_v_heads};
}

// Little-endian, as saved sequences are.
void store_floats(std::span<const float> values, std::span<std::byte> out) {
  for (std::size_t i = 0; i < values.size(); ++i) store_le(out.data() + 4 * i, values[i]);
}
void load_floats(std::span<const std::byte> in, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_le<float>(in.data() + 4 * i);
}

std::uint64_t layer_bytes(const VulkanStateShape& shape, std::uint32_t layer) {
  if (keeps_positions(shape.config.layer_type(layer))) {
    return position_rows(shape, layer).total() * shape.context;
  }
  return delta_shape(shape).device_floats() * sizeof(float);
}

}  // namespace

std::uint64_t vulkan_state_bytes(const VulkanStateShape& shape) {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < shape.config.num_layers; ++l) bytes += layer_bytes(shape, l);
  return bytes;
}

std::uint64_t vulkan_key_value_bytes(const VulkanStateShape& shape) {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < shape.config.num_layers; ++l) {
    if (keeps_positions(shape.config.layer_type(l))) bytes += layer_bytes(shape, l);
  }
  return bytes;
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
    list.copy(layers_[l].handle(), 0, other->layers_[l].handle(), 0,
              is_recurrent(l) ? layer_bytes(shape_, l) : position_rows(shape_, l).total() * tokens);
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
  return shape_.config.layers_of(LayerType::kLinearAttention) != 0;
}

std::uint64_t VulkanState::saved_layer_bytes(std::uint32_t layer, std::uint64_t tokens) const {
  if (!is_recurrent(layer)) return position_rows(shape_, layer).total() * tokens;
  const DeltaStateShape shape = delta_shape(shape_);
  return (shape.conv_floats() + shape.delta_floats()) * sizeof(float);
}

std::uint64_t VulkanState::saved_bytes(std::uint64_t tokens) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) bytes += saved_layer_bytes(l, tokens);
  return bytes;
}

Status VulkanState::save_delta(const DeviceBuffer& layer, std::span<std::byte> out) const {
  const DeltaStateShape shape = delta_shape(shape_);
  std::vector<float> state(shape.device_floats());
  MOE_RETURN_IF_ERROR(device_->download(layer, 0, std::as_writable_bytes(std::span(state))));
  std::vector<float> saved(shape.conv_floats() + shape.delta_floats());
  unpack_delta_state(shape, state, std::span(saved).first(shape.conv_floats()),
                     std::span(saved).subspan(shape.conv_floats()));
  store_floats(saved, out);
  return Status::ok();
}

Status VulkanState::load_delta(const DeviceBuffer& layer, std::span<const std::byte> in) {
  const DeltaStateShape shape = delta_shape(shape_);
  std::vector<float> saved(shape.conv_floats() + shape.delta_floats());
  load_floats(in, saved);
  std::vector<float> state(shape.device_floats());
  pack_delta_state(shape, std::span(saved).first(shape.conv_floats()),
                   std::span(saved).subspan(shape.conv_floats()), state);
  return device_->upload(layer, 0, std::as_bytes(std::span(state)));
}

// On the device the keys and values of a position stand side by side; in a file all keys come
// first.
Status VulkanState::save(std::uint64_t tokens, std::span<std::byte> bytes) const {
  std::vector<std::byte> held;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    const std::span<std::byte> out = bytes.first(saved_layer_bytes(l, tokens));
    bytes = bytes.subspan(out.size());
    if (!is_recurrent(l)) {
      const auto [row, count] = position_rows(shape_, l);
      held.resize(out.size());
      MOE_RETURN_IF_ERROR(device_->download(layers_[l], 0, held));
      for (std::uint64_t i = 0; i < count * tokens; ++i) {
        std::memcpy(out.data() + (i % count * tokens + i / count) * row, held.data() + i * row,
                    row);
      }
    } else {
      MOE_RETURN_IF_ERROR(save_delta(layers_[l], out));
    }
  }
  return Status::ok();
}

Status VulkanState::load(std::uint64_t tokens, std::span<const std::byte> bytes) {
  std::vector<std::byte> held;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    const std::span<const std::byte> in = bytes.first(saved_layer_bytes(l, tokens));
    bytes = bytes.subspan(in.size());
    if (!is_recurrent(l)) {
      const auto [row, count] = position_rows(shape_, l);
      held.resize(in.size());
      for (std::uint64_t i = 0; i < count * tokens; ++i) {
        std::memcpy(held.data() + i * row, in.data() + (i % count * tokens + i / count) * row, row);
      }
      MOE_RETURN_IF_ERROR(device_->upload(layers_[l], 0, held));
    } else {
      MOE_RETURN_IF_ERROR(load_delta(layers_[l], in));
    }
  }
  return Status::ok();
}

std::uint64_t VulkanState::recurrent_bytes(std::uint64_t tokens) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    if (is_recurrent(l)) bytes += saved_layer_bytes(l, tokens);
  }
  return bytes;
}

Status VulkanState::save_recurrent(std::uint64_t tokens, std::span<std::byte> bytes) const {
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    if (!is_recurrent(l)) continue;
    const std::size_t size = saved_layer_bytes(l, tokens);
    MOE_RETURN_IF_ERROR(save_delta(layers_[l], bytes.first(size)));
    bytes = bytes.subspan(size);
  }
  return Status::ok();
}

Status VulkanState::load_recurrent(std::uint64_t tokens, std::span<const std::byte> bytes) {
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    if (!is_recurrent(l)) continue;
    const std::size_t size = saved_layer_bytes(l, tokens);
    MOE_RETURN_IF_ERROR(load_delta(layers_[l], bytes.first(size)));
    bytes = bytes.subspan(size);
  }
  return Status::ok();
}

}  // namespace moepack

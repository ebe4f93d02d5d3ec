#include "runtime/model/layer_state.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/model/byte_counts.h"
#include "runtime/store/out_of_memory.h"

namespace moepack {
namespace {

KvShape kv_shape(const ModelConfig& c, std::uint64_t context, const KvFormat& format) {
  return {.heads = c.num_kv_heads, .head_dim = c.head_dim, .context = context, .format = format};
}
std::uint64_t conv_floats(const ModelConfig& c) {
  return c.linear_conv_taps == 0 ? 0 : capped_product(c.linear_conv_taps - 1, conv_channels(c));
}
std::uint64_t delta_floats(const ModelConfig& c) {
  return capped_product(std::uint64_t{c.linear_value_heads} * c.linear_key_dim, c.linear_value_dim);
}

std::uint64_t recurrent_bytes(const ModelConfig& c) {
  return capped_product(capped_sum(conv_floats(c), delta_floats(c)), sizeof(float));
}

constexpr std::string_view kRecurrentState = "the recurrent state of a layer";

}  // namespace

Result<LayerState> LayerState::create(const ModelConfig& config, LayerType type,
                                      std::uint64_t context, const KvFormat& format) {
  if (type == LayerType::kFullAttention) {
    return or_out_of_memory("the list of a layer's keys and values", std::nullopt,
                            [&]() -> Result<LayerState> {
                              LayerState state;
                              state.kv = make_kv_cache(kv_shape(config, context, format));
                              return state;
                            });
  }
  return or_out_of_memory(kRecurrentState, recurrent_bytes(config), [&]() -> Result<LayerState> {
    LayerState state;
    state.conv.resize(conv_floats(config));
    state.delta.resize(delta_floats(config));
    return state;
  });
}

void LayerState::reset() {
  std::fill(conv.begin(), conv.end(), 0.0F);
  std::fill(delta.begin(), delta.end(), 0.0F);
}

Result<LayerState> LayerState::copy(std::uint64_t tokens) const {
  if (kv != nullptr) {
    return or_out_of_memory("the list of a layer's keys and values", std::nullopt,
                            [&]() -> Result<LayerState> {
                              LayerState other;
                              MOE_ASSIGN_OR_RETURN(other.kv, kv->copy(tokens));
                              return other;
                            });
  }
  return or_out_of_memory(kRecurrentState, memory_bytes(), [&]() -> Result<LayerState> {
    LayerState other;
    other.conv = conv;
    other.delta = delta;
    return other;
  });
}

std::uint64_t LayerState::memory_bytes() const {
  const std::uint64_t recurrent = (conv.size() + delta.size()) * sizeof(float);
  return recurrent + (kv == nullptr ? 0 : kv->memory_bytes());
}

std::uint64_t LayerState::saved_bytes(std::uint64_t tokens) const {
  if (kv != nullptr) return kv->encoded_bytes(tokens);
  return (conv.size() + delta.size()) * sizeof(float);
}

void LayerState::save(std::uint64_t tokens, std::span<std::byte> bytes) const {
  if (kv != nullptr) return kv->save(tokens, bytes);
  const std::size_t conv_bytes = conv.size() * sizeof(float);
  std::memcpy(bytes.data(), conv.data(), conv_bytes);
  std::memcpy(bytes.data() + conv_bytes, delta.data(), delta.size() * sizeof(float));
}

Status LayerState::load(std::uint64_t tokens, std::span<const std::byte> bytes) {
  if (kv != nullptr) return kv->load(tokens, bytes);
  const std::size_t conv_bytes = conv.size() * sizeof(float);
  std::memcpy(conv.data(), bytes.data(), conv_bytes);
  std::memcpy(delta.data(), bytes.data() + conv_bytes, delta.size() * sizeof(float));
  return Status::ok();
}

std::uint64_t layer_state_bytes(const ModelConfig& config, LayerType type, std::uint64_t context,
                                const KvFormat& format) {
  const std::uint64_t held = type == LayerType::kFullAttention
                                 ? kv_cache_bytes(kv_shape(config, context, format))
                                 : recurrent_bytes(config);
  return capped_sum(held, sizeof(LayerState));
}

StateBytes state_bytes(const ModelConfig& config, std::uint64_t context, const KvFormat& format) {
  StateBytes bytes;
  for (const LayerSpec& spec : config.layers) {
    const LayerType type = layer_type(spec);
    std::uint64_t& sum = type == LayerType::kFullAttention ? bytes.key_value : bytes.recurrent;
    sum = capped_sum(sum, layer_state_bytes(config, type, context, format));
  }
  return bytes;
}

}  // namespace moepack

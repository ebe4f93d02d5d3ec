#include "runtime/model/layer_state.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/model/byte_counts.h"
#include "runtime/model/delta_block.h"
#include "runtime/store/out_of_memory.h"

namespace moepack {
namespace {

KvShape kv_shape(const ModelConfig& c, const LayerSpec& layer, std::uint64_t context,
                 const KvFormat& format) {
  const auto* full = std::get_if<FullAttentionSpec>(&layer.mixer);
  if (full == nullptr) {
    return {.heads = 1,
            .head_dim = std::uint64_t{c.kv_rank} + c.rotary_dim,
            .context = context,
            .format = format,
            .value_in_key = c.kv_rank};
  }
  const HeadSizes heads = c.heads_of(*full);
  return {
      .heads = heads.kv_heads, .head_dim = heads.head_dim, .context = context, .format = format};
}
std::uint64_t conv_floats(const ModelConfig& c) {
  return c.linear_conv_taps == 0 ? 0 : capped_product(c.linear_conv_taps - 1, conv_channels(c));
}
std::uint64_t delta_floats(const ModelConfig& c) {
  return capped_product(std::uint64_t{c.linear_value_heads} * c.linear_key_dim, c.linear_value_dim);
}

std::uint64_t row_floats(const ModelConfig& c) {
  const std::uint64_t keys = std::uint64_t{c.linear_key_heads} * c.linear_key_dim;
  const std::uint64_t values = std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
  return capped_sum(capped_product(kDeltaBlock, capped_sum(keys, values)),
                    (1 + kDeltaBlock) * std::uint64_t{c.linear_value_heads});
}

std::uint64_t recurrent_bytes(const ModelConfig& c, DeltaForm form) {
  std::uint64_t floats = capped_sum(conv_floats(c), delta_floats(c));
  if (form == DeltaForm::kBlocks) floats = capped_sum(floats, row_floats(c));
  return capped_product(floats, sizeof(float));
}

DeltaRows make_rows(const ModelConfig& c) {
  DeltaRows rows;
  rows.key_dim = c.linear_key_dim;
  rows.value_dim = c.linear_value_dim;
  const std::size_t key_heads = c.linear_key_heads;
  const std::size_t value_heads = c.linear_value_heads;
  rows.keys.resize(key_heads * kDeltaBlock * rows.key_dim);
  rows.values.resize(value_heads * kDeltaBlock * rows.value_dim);
  rows.decays.resize(value_heads * (1 + kDeltaBlock));
  return rows;
}

// Calls each(vector, stride, floats) for the rows of `rows` that `tokens` tokens have left: of
// every head the first `floats` floats of `stride`.
template <typename Rows, typename Each>
void visit_rows(Rows& rows, std::uint64_t tokens, const Each& each) {
  const std::size_t seen = tokens % kDeltaBlock;
  if (seen == 0 || rows.decays.empty()) return;
  each(rows.keys, kDeltaBlock * rows.key_dim, seen * rows.key_dim);
  each(rows.values, kDeltaBlock * rows.value_dim, seen * rows.value_dim);
  each(rows.decays, 1 + kDeltaBlock, 1 + seen);
}

constexpr std::string_view kRecurrentState = "the recurrent state of a layer";

}  // namespace

Result<LayerState> LayerState::create(const ModelConfig& config, const LayerSpec& layer,
                                      std::uint64_t context, const StateForm& form) {
  if (keeps_positions(layer_type(layer))) {
    return or_out_of_memory("the list of a layer's keys and values", std::nullopt,
                            [&]() -> Result<LayerState> {
                              LayerState state;
                              state.kv = make_kv_cache(kv_shape(config, layer, context, form.kv));
                              return state;
                            });
  }
  const std::uint64_t bytes = recurrent_bytes(config, form.delta);
  return or_out_of_memory(kRecurrentState, bytes, [&]() -> Result<LayerState> {
    LayerState state;
    state.conv.resize(conv_floats(config));
    state.delta.resize(delta_floats(config));
    if (form.delta == DeltaForm::kBlocks) state.rows = make_rows(config);
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
    other.rows = rows;
    return other;
  });
}

std::uint64_t LayerState::memory_bytes() const {
  const std::uint64_t floats =
      conv.size() + delta.size() + rows.keys.size() + rows.values.size() + rows.decays.size();
  return floats * sizeof(float) + (kv == nullptr ? 0 : kv->memory_bytes());
}

std::uint64_t LayerState::saved_bytes(std::uint64_t tokens) const {
  if (kv != nullptr) return kv->encoded_bytes(tokens);
  std::uint64_t count = conv.size() + delta.size();
  visit_rows(rows, tokens,
             [&](const std::vector<float>& all, std::size_t stride, std::size_t floats) {
               count += all.size() / stride * floats;
             });
  return count * sizeof(float);
}

void LayerState::save(std::uint64_t tokens, std::span<std::byte> bytes) const {
  if (kv != nullptr) return kv->save(tokens, bytes);
  std::byte* to = bytes.data();
  const auto write = [&](const float* from, std::size_t count) {
    if (count == 0) return;  // of a convolution of one tap nothing is kept
    std::memcpy(to, from, count * sizeof(float));
    to += count * sizeof(float);
  };
  write(conv.data(), conv.size());
  write(delta.data(), delta.size());
  visit_rows(rows, tokens,
             [&](const std::vector<float>& all, std::size_t stride, std::size_t floats) {
               for (std::size_t at = 0; at < all.size(); at += stride) write(&all[at], floats);
             });
}

Status LayerState::load(std::uint64_t tokens, std::span<const std::byte> bytes) {
  if (kv != nullptr) return kv->load(tokens, bytes);
  const std::byte* from = bytes.data();
  const auto read = [&](float* to, std::size_t count) {
    if (count == 0) return;
    std::memcpy(to, from, count * sizeof(float));
    from += count * sizeof(float);
  };
  read(conv.data(), conv.size());
  read(delta.data(), delta.size());
  visit_rows(rows, tokens, [&](std::vector<float>& all, std::size_t stride, std::size_t floats) {
    for (std::size_t at = 0; at < all.size(); at += stride) read(&all[at], floats);
  });
  return Status::ok();
}

std::uint64_t layer_state_bytes(const ModelConfig& config, const LayerSpec& layer,
                                std::uint64_t context, const StateForm& form) {
  const std::uint64_t held = keeps_positions(layer_type(layer))
                                 ? kv_cache_bytes(kv_shape(config, layer, context, form.kv))
                                 : recurrent_bytes(config, form.delta);
  return capped_sum(held, sizeof(LayerState));
}

bool has_same_state(const ModelConfig& config, const LayerSpec& a, const LayerSpec& b) {
  if (layer_type(a) != layer_type(b)) return false;
  const auto* first = std::get_if<FullAttentionSpec>(&a.mixer);
  const auto* second = std::get_if<FullAttentionSpec>(&b.mixer);
  if (first == nullptr || second == nullptr) return true;
  const HeadSizes heads = config.heads_of(*first);
  const HeadSizes others = config.heads_of(*second);
  return heads.kv_heads == others.kv_heads && heads.head_dim == others.head_dim;
}

std::vector<LayerSpec> state_kinds(const ModelConfig& config) {
  std::vector<LayerSpec> kinds;
  for (const LayerSpec& layer : config.layers) {
    const auto is_same = [&](const LayerSpec& kind) { return has_same_state(config, kind, layer); };
    if (std::none_of(kinds.begin(), kinds.end(), is_same)) kinds.push_back(layer);
  }
  return kinds;
}

StateBytes state_bytes(const ModelConfig& config, std::uint64_t context, const StateForm& form) {
  StateBytes bytes;
  for (const LayerSpec& spec : config.layers) {
    const bool keeps = keeps_positions(layer_type(spec));
    std::uint64_t& sum = keeps ? bytes.key_value : bytes.recurrent;
    sum = capped_sum(sum, layer_state_bytes(config, spec, context, form));
  }
  return bytes;
}

}  // namespace moepack

// What one layer remembers of one sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/large_pages.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "runtime/model/delta_block.h"
#include "runtime/model/kv_cache.h"
#include "runtime/model/state_form.h"

namespace moepack {

// What a block has left of the tokens seen in it, kDeltaBlock rows a head; only rows of tokens seen
// are ever read.
struct DeltaRows {
  std::size_t key_dim = 0;    // dk
  std::size_t value_dim = 0;  // dv
  std::vector<float> keys;    // [nk, kDeltaBlock, dk]: normalised keys
  std::vector<float> values;  // [nv, kDeltaBlock, dv]: corrected values u
  // [nv, 1 + kDeltaBlock]: products of the decays since the block's beginning, and since each row.
  std::vector<float> decays;
};

// Move-only. One thread at a time changes it; what is stored may be read by many.
struct LayerState {
  // Full and latent attention: keys and values; null in layers that are recurrent.
  std::unique_ptr<KvCache> kv;
  // GatedDeltaNet: the last taps - 1 inputs of the convolution, [taps - 1, channels], oldest first.
  std::vector<float> conv;
  // GatedDeltaNet: S of every V head, [nv, dk, dv].
  LargePageVector<float> delta;
  // GatedDeltaNet in blocks; empty token by token.
  DeltaRows rows;

  // A fresh state for such a layer in sequences of at most `context` tokens. Keys and values
  // take memory as they come. kIo when memory is short.
  static Result<LayerState> create(const ModelConfig& config, const LayerSpec& layer,
                                   std::uint64_t context, const StateForm& form);
  // As if no token had ever been seen. Keys and values need no clearing: positions beyond the
  // tokens seen are never read.
  void reset();
  // The state after the first `tokens` tokens, which are all that were seen. kIo when memory is
  // short.
  Result<LayerState> copy(std::uint64_t tokens) const;
  // Memory that is held now, in bytes.
  std::uint64_t memory_bytes() const;

  // Bytes of the state after `tokens` tokens in a saved sequence: keys and values as encoded, or
  // conv, delta and rows as little-endian float32.
  std::uint64_t saved_bytes(std::uint64_t tokens) const;
  // `bytes` has saved_bytes(tokens).
  void save(std::uint64_t tokens, std::span<std::byte> bytes) const;
  Status load(std::uint64_t tokens, std::span<const std::byte> bytes);
};

// Memory of the states of one sequence whose context is full; each at most kTooManyBytes.
struct StateBytes {
  std::uint64_t key_value = 0;
  std::uint64_t recurrent = 0;
};
StateBytes state_bytes(const ModelConfig& config, std::uint64_t context, const StateForm& form);
// The same of one layer.
std::uint64_t layer_state_bytes(const ModelConfig& config, const LayerSpec& layer,
                                std::uint64_t context, const StateForm& form);
// One layer of each kind whose states differ, in the order in which they come first.
std::vector<LayerSpec> state_kinds(const ModelConfig& config);
// Whether states of the two have the same form and size.
bool has_same_state(const ModelConfig& config, const LayerSpec& a, const LayerSpec& b);

// Channels of the convolution of a GatedDeltaNet layer: q and k of all key heads, v of all heads.
inline std::uint64_t conv_channels(const ModelConfig& c) {
  return 2 * std::uint64_t{c.linear_key_heads} * c.linear_key_dim +
         std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
}

}  // namespace moepack

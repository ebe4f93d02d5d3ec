// What a backend remembers of one sequence: keys and values of its attention layers, recurrent
// states of the others. Where that memory lies is the backend's matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "formats/base/status.h"
#include "runtime/model/delta_block.h"

namespace moepack {

// `tokens` is always the number of tokens seen, which the owner (Sequence) counts. One thread at a
// time uses a state.
class SequenceState {
 public:
  virtual ~SequenceState() = default;

  // As if no token had ever been seen.
  virtual void reset() = 0;
  // A state of its own that equals this one. kIo when memory is short.
  virtual Result<std::unique_ptr<SequenceState>> copy(std::uint64_t tokens) const = 0;
  // Memory that is held now, in bytes.
  virtual std::uint64_t memory_bytes() const = 0;

  // Whether some state depends on all tokens seen and not on a position's alone.
  virtual bool has_recurrent() const = 0;
  // How recurrent states are kept and saved; kTokens where there are none.
  virtual DeltaForm delta_form() const = 0;

  // Bytes of save(tokens). They depend on the model's shape, delta_form() and `tokens`
  // alone; at most kTooManyBytes for any number of tokens.
  virtual std::uint64_t saved_bytes(std::uint64_t tokens) const = 0;
  // Writes the states of all layers, one after another, as docs/sequence-format.md says; `bytes`
  // has saved_bytes(tokens).
  virtual Status save(std::uint64_t tokens, std::span<std::byte> bytes) const = 0;
  // The reverse, with any bytes of that size. After an error the state is undefined until reset().
  virtual Status load(std::uint64_t tokens, std::span<const std::byte> bytes) = 0;

  // The same for the recurrent states alone, layer after layer as save() writes them; 0 bytes where
  // there are none. Keys and values stay as they are.
  virtual std::uint64_t recurrent_bytes(std::uint64_t tokens) const = 0;
  virtual Status save_recurrent(std::uint64_t tokens, std::span<std::byte> bytes) const = 0;
  virtual Status load_recurrent(std::uint64_t tokens, std::span<const std::byte> bytes) = 0;
};

}  // namespace moepack

// One text on its way through a model: how many tokens it has seen and what the model remembers of
// them. Weights and scratch belong to the engine and are shared by all sequences.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/model/saved_sequence.h"
#include "runtime/model/sequence_state.h"
#include "runtime/model/state_snapshot.h"

namespace moepack {

// How many sequences an engine's memory plan has room for, and how many there are.
class SequenceSlots {
 public:
  explicit SequenceSlots(std::uint32_t most) : most_(most) {}
  std::uint32_t most() const { return most_; }
  bool take();  // false when all are taken
  void give_back() { --taken_; }

 private:
  std::uint32_t most_;
  std::atomic<std::uint32_t> taken_{0};
};

using StateMaker = std::function<Result<std::unique_ptr<SequenceState>>()>;

// Move-only; made by Engine::make_sequence and dropped by destruction, also after the engine. One
// thread at a time uses a sequence, and never while a forward of it runs.
class Sequence {
 public:
  // Takes a slot, then asks `make_state` for a fresh state: without a slot nothing is allocated,
  // and without a state the slot is given back. kInvalidArgument when no slot is left, else the
  // error of `make_state`.
  static Result<Sequence> create(const StateIdentity& identity,
                                 std::shared_ptr<SequenceSlots> slots,
                                 const StateMaker& make_state);
  Sequence(Sequence&& other) noexcept = default;
  Sequence& operator=(Sequence&& other) noexcept = default;

  std::uint64_t context() const { return identity_.context; }  // most tokens
  std::uint64_t position() const { return position_; }         // tokens seen
  // Memory of its states now, in bytes. Keys and values grow with the tokens.
  std::uint64_t memory_bytes() const { return state_->memory_bytes(); }
  // The error that ended the sequence: it takes no more tokens, and cannot be copied or saved,
  // until reset() or restore().
  const Status& status() const { return status_; }

  // Forgets every token, and the error.
  void reset();
  // A second sequence in the same state; each goes its own way. It takes a slot before memory. kIo
  // when memory is short.
  Result<Sequence> copy() const;
  // The state as bytes (docs/sequence-format.md), for this model alone.
  Result<std::vector<std::byte>> save() const;
  // The error that restore() would give before it changes anything.
  Status check_saved(std::span<const std::byte> bytes, const SavedPlace& place) const;
  // Takes the state of such bytes, whatever the sequence has seen. Any bytes may come. After an
  // error the sequence is as it was, or, when memory was short, fresh.
  Status restore(std::span<const std::byte> bytes,
                 const SavedPlace& place = {.file = "the saved sequence"});
  // Whether truncate() can be: every state is kept by position, as keys and values are. Recurrent
  // states remember what they have seen as a whole.
  bool can_truncate() const { return !state_->has_recurrent(); }
  // Forgets all tokens but the first `tokens`, at most position(). kInvalidArgument where it
  // cannot; the error that ended the sequence, if one did.
  Status truncate(std::uint64_t tokens);

  // The recurrent states as they are now, so that rewind() can come back here. kIo when memory is
  // short; the error that ended the sequence, if one did.
  Result<StateSnapshot> snapshot() const;
  // Bytes that a snapshot of now takes: 0 where truncate() needs none.
  std::uint64_t snapshot_bytes() const { return state_->recurrent_bytes(position_); }
  // Forgets all tokens behind the snapshot's, exactly: what is computed from there on has the bits
  // that it has without the detour. The sequence has seen the snapshot's tokens before all others
  // (StateSnapshot); kInvalidArgument for a snapshot of more tokens than it has seen, or of another
  // size. The error that ended the sequence, if one did. Errors of a device end the sequence.
  Status rewind(const StateSnapshot& snapshot);
  // copy() and rewind() in one, without copying keys and values that rewind() would drop.
  Result<Sequence> copy_at(const StateSnapshot& snapshot) const;
  // A snapshot from what its states() were; kCorrupt where they are not those of `position` tokens.
  Result<StateSnapshot> make_snapshot(std::uint64_t position,
                                      std::span<const std::byte> states) const;

  // For the engine: the state; counting tokens; ending the sequence.
  SequenceState& state() { return *state_; }
  void advance(std::uint64_t tokens) { position_ += tokens; }
  void end(Status status) { status_ = std::move(status); }

 private:
  struct GiveBack {
    std::shared_ptr<SequenceSlots> slots;
    void operator()(SequenceSlots* of) const { of->give_back(); }
  };

  Sequence() = default;
  Status check_snapshot(const StateSnapshot& snapshot) const;

  StateIdentity identity_;
  std::unique_ptr<SequenceSlots, GiveBack> slot_;  // gives the slot back when it goes
  std::unique_ptr<SequenceState> state_;
  std::uint64_t position_ = 0;
  Status status_;
};

}  // namespace moepack

// What truncating a sequence cannot bring back, kept for later: its recurrent states at one
// position. Keys and values are not in it; they stay in the sequence, position by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace moepack {

// The bits of the recurrent states after `position()` tokens; no bytes where a model has none.
// Unchanging, in host memory wherever the sequence computes. Of the sequence that made it and its
// copies, as long as their first position() tokens are those it was made of: nothing checks that.
class StateSnapshot {
 public:
  StateSnapshot(std::uint64_t position, std::vector<std::byte> states)
      : position_(position), states_(std::move(states)) {}

  std::uint64_t position() const { return position_; }
  std::span<const std::byte> states() const { return states_; }  // SequenceState::save_recurrent
  std::uint64_t size_bytes() const { return states_.size(); }

 private:
  std::uint64_t position_;
  std::vector<std::byte> states_;
};

}  // namespace moepack

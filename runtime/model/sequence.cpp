#include "runtime/model/sequence.h"

#include <string>
#include <utility>

#include "runtime/store/out_of_memory.h"

namespace moepack {

bool SequenceSlots::take() {
  std::uint32_t taken = taken_.load();
  while (taken < most_) {
    if (taken_.compare_exchange_weak(taken, taken + 1)) return true;
  }
  return false;
}

Result<Sequence> Sequence::create(const StateIdentity& identity,
                                  std::shared_ptr<SequenceSlots> slots,
                                  const StateMaker& make_state) {
  if (!slots->take()) {
    return invalid_argument(
        "the memory plan has room for " + std::to_string(slots->most()) + " sequences at once",
        "drop one, or open the engine for more sequences");
  }
  Sequence sequence;
  sequence.identity_ = identity;
  SequenceSlots* const taken = slots.get();
  sequence.slot_ = {taken, GiveBack{std::move(slots)}};
  MOE_ASSIGN_OR_RETURN(sequence.state_, make_state());
  return sequence;
}

void Sequence::reset() {
  state_->reset();
  position_ = 0;
  status_ = Status::ok();
}

Result<Sequence> Sequence::copy() const {
  if (!status_.is_ok()) return status_;
  MOE_ASSIGN_OR_RETURN(Sequence other, create(identity_, slot_.get_deleter().slots,
                                              [this] { return state_->copy(position_); }));
  other.position_ = position_;
  return other;
}

Result<std::vector<std::byte>> Sequence::save() const {
  if (!status_.is_ok()) return status_;
  return save_sequence(identity_, position_, *state_);
}

Status Sequence::check_saved(std::span<const std::byte> bytes, const SavedPlace& place) const {
  return check_sequence(identity_, bytes, place, *state_).status();
}

Status Sequence::restore(std::span<const std::byte> bytes, const SavedPlace& place) {
  const auto position = load_sequence(identity_, bytes, place, *state_);
  if (!position.is_ok()) {
    // Only reading the states into memory can fail in this way, and leaves them half read.
    if (position.status().code() == StatusCode::kIo) reset();
    return position.status();
  }
  position_ = position.value();
  status_ = Status::ok();
  return Status::ok();
}

Status Sequence::truncate(std::uint64_t tokens) {
  if (!status_.is_ok()) return status_;
  if (tokens == position_) return Status::ok();
  if (tokens > position_ || !can_truncate()) {
    return invalid_argument("the sequence has seen " + std::to_string(position_) +
                            " tokens and cannot be cut to " + std::to_string(tokens));
  }
  position_ = tokens;
  return Status::ok();
}

Result<StateSnapshot> Sequence::snapshot() const {
  if (!status_.is_ok()) return status_;
  const std::uint64_t size = snapshot_bytes();
  return or_out_of_memory("a snapshot of recurrent states", size, [&]() -> Result<StateSnapshot> {
    std::vector<std::byte> states(size);
    MOE_RETURN_IF_ERROR(state_->save_recurrent(position_, states));
    return StateSnapshot(position_, std::move(states));
  });
}

Status Sequence::check_snapshot(const StateSnapshot& snapshot) const {
  if (!status_.is_ok()) return status_;
  const bool is_of_this = snapshot.position() <= position_ &&
                          snapshot.size_bytes() == state_->recurrent_bytes(snapshot.position());
  if (is_of_this) return Status::ok();
  return invalid_argument("a snapshot of " + std::to_string(snapshot.size_bytes()) + " bytes at " +
                          std::to_string(snapshot.position()) +
                          " tokens is not of a sequence that has seen " +
                          std::to_string(position_));
}

Status Sequence::rewind(const StateSnapshot& snapshot) {
  MOE_RETURN_IF_ERROR(check_snapshot(snapshot));
  if (snapshot.position() == position_) return Status::ok();
  const Status status = state_->load_recurrent(snapshot.position(), snapshot.states());
  if (!status.is_ok()) {
    end(status);
    return status;
  }
  position_ = snapshot.position();
  return Status::ok();
}

Result<Sequence> Sequence::copy_at(const StateSnapshot& snapshot) const {
  MOE_RETURN_IF_ERROR(check_snapshot(snapshot));
  MOE_ASSIGN_OR_RETURN(Sequence other, create(identity_, slot_.get_deleter().slots,
                                              [&] { return state_->copy(snapshot.position()); }));
  MOE_RETURN_IF_ERROR(other.state_->load_recurrent(snapshot.position(), snapshot.states()));
  other.position_ = snapshot.position();
  return other;
}

Result<StateSnapshot> Sequence::make_snapshot(std::uint64_t position,
                                              std::span<const std::byte> states) const {
  if (position > context() || states.size() != state_->recurrent_bytes(position)) {
    return corrupt(Where{},
                   "has " + std::to_string(states.size()) + " bytes of recurrent states for " +
                       std::to_string(position) + " tokens",
                   "save the sequence again");
  }
  return or_out_of_memory(
      "a snapshot of recurrent states", states.size(), [&]() -> Result<StateSnapshot> {
        return StateSnapshot(position, std::vector<std::byte>(states.begin(), states.end()));
      });
}

}  // namespace moepack

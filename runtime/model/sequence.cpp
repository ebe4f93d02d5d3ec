#include "runtime/model/sequence.h"

#include <string>
#include <utility>

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

}  // namespace moepack

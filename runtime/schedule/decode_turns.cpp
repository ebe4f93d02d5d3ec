#include "runtime/schedule/decode_turns.h"

#include <algorithm>
#include <utility>

namespace moepack {

Result<TurnUse> parse_turn_use(std::string_view name) {
  if (name == "auto") return TurnUse::kTried;
  if (name == "on") return TurnUse::kAlways;
  if (name == "off") return TurnUse::kNever;
  return invalid_argument("--turns " + printable(name, 40) + " is unknown", "give auto, on or off");
}

double DecodeTurns::stretch_seconds(std::size_t sequences) {
  return std::min(kMostStretch, kMostWait / static_cast<double>(sequences - 1));
}

TurnTrial& DecodeTurns::trial() {
  while (trials_.size() + 2 <= waiting_.size()) {
    trials_.emplace_back(static_cast<std::uint32_t>(trials_.size() + 2));
  }
  return trials_[waiting_.size() - 2];
}

// Those that came go to the end of the queue.
void DecodeTurns::meet(std::span<const std::uint32_t> ids) {
  const bool is_same =
      std::equal(ids.begin(), ids.end(), waiting_.begin(), waiting_.end(),
                 [](std::uint32_t id, const Waiting& waiting) { return id == waiting.id; });
  if (is_same) return;
  break_stretch();
  std::vector<Waiting> met;
  ++turns_;
  for (const std::uint32_t id : ids) {
    const auto known = std::find_if(waiting_.begin(), waiting_.end(),
                                    [id](const Waiting& waiting) { return waiting.id == id; });
    met.push_back(known != waiting_.end() ? *known : Waiting{.id = id, .turn = turns_});
  }
  waiting_ = std::move(met);
}

void DecodeTurns::begin_stretch(bool is_whole) {
  current_.reset();
  steps_ = 0;
  seconds_ = longest_step_ = 0;
  is_whole_ = is_whole;
}

// Whose turn it was has had it.
void DecodeTurns::break_stretch() {
  if (steps_ > 0 && waiting_.size() > 1) trial().interrupt();
  begin_stretch(false);
}

bool DecodeTurns::is_stretch_over() const {
  return steps_ > 0 && seconds_ + longest_step_ > stretch_seconds(waiting_.size());
}

std::size_t DecodeTurns::whose_turn(std::span<const std::uint32_t> ids) {
  if (!current_.has_value()) {
    const auto next =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const Waiting& a, const Waiting& b) { return a.turn < b.turn; });
    next->turn = ++turns_;
    current_ = next->id;
  }
  return static_cast<std::size_t>(std::find(ids.begin(), ids.end(), *current_) - ids.begin());
}

std::optional<std::size_t> DecodeTurns::next(std::span<const std::uint32_t> ids) {
  stepping_ = ids.size();
  if (use_ == TurnUse::kNever) return std::nullopt;
  meet(ids);
  if (ids.size() < 2) return std::nullopt;
  if (is_stretch_over()) {
    trial().end_stretch(is_whole_);
    begin_stretch(true);
  }
  if (use_ == TurnUse::kTried && !trial().takes_turns()) return std::nullopt;
  stepping_ = 1;
  return whose_turn(ids);
}

void DecodeTurns::note(double seconds, std::uint64_t reads) {
  ++steps_;
  seconds_ += seconds;
  longest_step_ = std::max(longest_step_, seconds);
  if (waiting_.size() > 1) trial().note(stepping_, seconds, reads);
}

void DecodeTurns::interrupt() { break_stretch(); }

}  // namespace moepack

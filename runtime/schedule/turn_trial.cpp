#include "runtime/schedule/turn_trial.h"

#include <cmath>
#include <utility>

namespace moepack {
namespace {

constexpr double kEarlierWeight = 0.5;

}  // namespace

bool TurnTrial::takes_turns() const {
  if (held_ > 0) return pays_;
  return arm_ == 0 || arm_ + 1 == kArms;
}

void TurnTrial::note(std::uint64_t tokens, double seconds, std::uint64_t reads) {
  now_.tokens += static_cast<double>(tokens);
  now_.seconds += seconds;
  ++steps_;
  reads_ += reads;
}

void TurnTrial::end_stretch(bool is_whole) {
  const Sums ended = std::exchange(now_, {});
  if (held_ > 0) {
    if (--held_ > 0) return;
    // Without an expert read in a step there is nothing that turns could spare.
    if (!pays_ && reads_ < steps_) hold();
    return;
  }
  if (!is_whole) return;
  if (stretch_ > 0) {
    arm_sums_.tokens += ended.tokens;
    arm_sums_.seconds += ended.seconds;
  }
  if (++stretch_ == arm_stretches_) end_arm();
}

void TurnTrial::interrupt() {
  now_ = {};
  if (held_ > 0 || ++interruptions_ < kArms * arm_stretches_) return;
  arm_sums_ = {};
  stretch_ = 0;
  trial_score_ = 0;
  hold();
}

// Half of the arms are of either way.
void TurnTrial::end_arm() {
  const Sums sums = std::exchange(arm_sums_, {});
  const double part = std::log(sums.tokens / sums.seconds) * 2 / kArms;
  trial_score_ += takes_turns() ? part : -part;
  stretch_ = 0;
  if (++arm_ == kArms) end_trial();
}

void TurnTrial::end_trial() {
  score_ = kEarlierWeight * score_ + std::exchange(trial_score_, 0);
  pays_ = score_ > kLeastGain;
  hold();
}

void TurnTrial::hold() {
  held_ = kHeldRounds * kArms * arm_stretches_;
  arm_ = interruptions_ = 0;
  steps_ = reads_ = 0;
}

}  // namespace moepack

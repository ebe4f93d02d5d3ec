#include "runtime/model/lookahead_trial.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

constexpr double kEarlierWeight = 0.5;
constexpr std::uint32_t kArms = LookaheadTrial::kTrialPasses / LookaheadTrial::kArmPasses;

double median(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  return (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
}

}  // namespace

LookaheadTrial::LookaheadTrial() { seconds_.reserve(kArmPasses); }

bool LookaheadTrial::reads_ahead() const {
  if (held_ > 0) return pays_;
  const std::uint32_t arm = pass_ / kArmPasses;
  return arm == 0 || arm + 1 == kArms;
}

void LookaheadTrial::note(std::size_t tokens, double seconds) {
  if (held_ > 0) {
    --held_;
    return;
  }
  if (pass_ > 0 && tokens != tokens_) {
    seconds_.clear();
    trial_score_ = 0;
    pass_ = 0;
    return;
  }
  tokens_ = tokens;
  seconds_.push_back(seconds);
  if (seconds_.size() == kArmPasses) end_arm();
  ++pass_;
  if (pass_ < kTrialPasses) return;
  score_ = kEarlierWeight * score_ + trial_score_;
  pays_ = score_ <= 0;
  trial_score_ = 0;
  pass_ = 0;
  held_ = kHeldPasses;
}

// Half of the arms are of either way.
void LookaheadTrial::end_arm() {
  const double part = std::log(median(seconds_)) * 2 / kArms;
  trial_score_ += reads_ahead() ? part : -part;
  seconds_.clear();
}

}  // namespace moepack

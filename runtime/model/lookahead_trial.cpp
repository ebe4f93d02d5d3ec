#include "runtime/model/lookahead_trial.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

constexpr double kEarlierWeight = 0.5;

double upper_median(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace

LookaheadTrial::LookaheadTrial() {
  with_.reserve(kTrialPasses / 2);
  without_.reserve(kTrialPasses / 2);
}

bool LookaheadTrial::reads_ahead() const {
  if (held_ > 0) return pays_;
  return pass_ < kArmPasses || pass_ >= kTrialPasses - kArmPasses;
}

void LookaheadTrial::note(std::size_t tokens, double seconds) {
  if (held_ > 0) {
    --held_;
    return;
  }
  if (pass_ > 0 && tokens != tokens_) {
    with_.clear();
    without_.clear();
    pass_ = 0;
    return;
  }
  tokens_ = tokens;
  (reads_ahead() ? with_ : without_).push_back(seconds);
  if (++pass_ == kTrialPasses) end_trial();
}

void LookaheadTrial::end_trial() {
  score_ = kEarlierWeight * score_ + std::log(upper_median(with_) / upper_median(without_));
  pays_ = score_ <= 0;
  with_.clear();
  without_.clear();
  pass_ = 0;
  held_ = kHeldPasses;
}

}  // namespace moepack

// Whether reading ahead pays, decided by trying: it does where the disk rests while a layer's mixer
// computes, and does not where the disk makes up for such a rest afterwards, or where a wrong guess
// takes longer than the mixer (docs/decisions.md, 58).
//
// Passes over few tokens go with and without it in four arms of kArmPasses: with, without, without,
// with, so that what changes steadily meanwhile falls on both alike. The way whose arms' medians
// are less holds for the kHeldPasses that follow, then both are tried again; an earlier trial
// counts half as much as the one after it. Until the first one has ended it is read ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moepack {

// Pure arithmetic: the clock is the caller's. One thread at a time.
class LookaheadTrial {
 public:
  static constexpr std::uint32_t kArmPasses = 8;
  static constexpr std::uint32_t kTrialPasses = 4 * kArmPasses;
  static constexpr std::uint32_t kFirstPasses = 16;  // before the first trial: the cache fills
  static constexpr std::uint32_t kHeldPasses = 224;

  LookaheadTrial();

  // Of the next pass.
  bool reads_ahead() const;
  // The pass over `tokens` took `seconds` (> 0). A trial among whose passes the number of tokens
  // changes begins anew: they do not compare.
  void note(std::size_t tokens, double seconds);

 private:
  void end_arm();

  bool pays_ = true;
  std::uint32_t held_ = kFirstPasses;  // passes until the next trial
  std::uint32_t pass_ = 0;             // of the trial
  std::size_t tokens_ = 0;             // of the trial's passes
  // Logs of time with over time without; below 0: it pays.
  double trial_score_ = 0;       // of this trial, so far
  double score_ = 0;             // of all that ended
  std::vector<double> seconds_;  // of the arm's passes; room is taken once
};

}  // namespace moepack

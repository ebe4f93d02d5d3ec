// Whether sequences that decode at once decode together or by turns, decided by trying.
//
// Where experts are read from a disk, a step of several sequences reads what each of them uses, and
// each finds fewer of its experts in the cache than it would find alone: where they share few, all
// together are slower than one. One sequence after the other, a stretch of steps each, is about as
// fast as one alone. Which is faster depends on the model, the texts, the cache and the disk
// (docs/decisions.md, 61).
#pragma once

#include <cstdint>

namespace moepack {

// Pure arithmetic, of a fixed number of sequences: the caller has the clock and cuts time into
// stretches. One thread at a time.
//
// A trial has four arms: by turns, together, together, by turns, so that what changes steadily
// falls on both alike. The first stretch of an arm does not count, since the cache still has what
// the other way left. The faster way holds for kHeldRounds times as long, then both are tried
// again; an earlier trial counts half as much as the one after it. A trial that is interrupted too
// often is given up.
class TurnTrial {
 public:
  static constexpr std::uint32_t kArms = 4;
  static constexpr std::uint32_t kHeldRounds = 7;  // a round is an arm's stretches
  // Turns make streams jerk: they must be faster by so much (logarithm of tokens a second).
  static constexpr double kLeastGain = 0.02;

  // `sequences` >= 2. Together at first.
  explicit TurnTrial(std::uint32_t sequences) : arm_stretches_(sequences + 1), held_(sequences) {}

  // Of the next step.
  bool takes_turns() const;
  // A step gave so many tokens in `seconds` (> 0), for which `reads` experts were read.
  void note(std::uint64_t tokens, double seconds, std::uint64_t reads);
  // A stretch ended. `is_whole`: nothing came between its steps or right before them; else it says
  // nothing of its way.
  void end_stretch(bool is_whole);
  // A stretch was broken off.
  void interrupt();

 private:
  void end_arm();
  void end_trial();
  void hold();

  const std::uint32_t arm_stretches_;
  bool pays_ = false;
  std::uint32_t held_;               // stretches until the next trial
  std::uint32_t arm_ = 0;            // of the trial
  std::uint32_t stretch_ = 0;        // of the arm
  std::uint32_t interruptions_ = 0;  // of the trial
  // Of the stretch, and of the arm's stretches that count.
  struct Sums {
    double tokens = 0, seconds = 0;
  };
  Sums now_, arm_sums_;
  std::uint64_t steps_ = 0, reads_ = 0;  // since the hold began
  // Logarithm of tokens a second by turns over together.
  double trial_score_ = 0, score_ = 0;
};

}  // namespace moepack

// Several sequences at once on a disk that is too slow: together or by turns, never less than one
// alone. The clock and the costs are the tests'.
#include "runtime/schedule/decode_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::decode_turns_test {
namespace {

constexpr std::uint32_t kExperts = 4096;  // of all layers together

// A model whose experts are read through a cache, the least recently used leaves; each sequence
// uses `used` of them in a step: of `own` ones that change slowly, and for a share of the steps'
// experts of those that all use.
struct Costs {
  std::size_t cached = 200;
  std::uint32_t used = 64;
  std::uint32_t own = 160;
  double shared = 0;         // share of experts that all sequences have in common
  double residents = 0.004;  // seconds of a step whatever it computes
  double token = 0.004;      // and of each token
  double read = 0.0008;      // and of each expert that is read
  double drift = 0.02;       // share of the own experts that change in a step
};

class Machine {
 public:
  explicit Machine(const Costs& costs) : costs_(costs) {}

  void add(std::uint32_t id) {
    sequences_.push_back({.id = id, .random = std::mt19937(id + 1), .own = {}, .last = now_});
    Sequence& added = sequences_.back();
    for (std::uint32_t i = 0; i < costs_.own; ++i) added.own.push_back(drawn(added));
  }
  void remove(std::uint32_t id) {
    std::erase_if(sequences_, [id](const Sequence& sequence) { return sequence.id == id; });
  }

  // Decodes for `seconds`; tokens a second.
  double run(DecodeTurns& turns, double seconds) {
    const double begin = now_;
    std::uint64_t tokens = 0;
    while (now_ < begin + seconds) tokens += step(turns);
    return static_cast<double>(tokens) / (now_ - begin);
  }

  std::uint64_t step(DecodeTurns& turns) {
    std::vector<std::uint32_t> ids;
    for (const Sequence& sequence : sequences_) ids.push_back(sequence.id);
    const auto one = turns.next(ids);
    std::vector<std::uint32_t> wanted;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (one.has_value() && *one != i) continue;
      const auto experts = experts_of(sequences_[i]);
      wanted.insert(wanted.end(), experts.begin(), experts.end());
    }
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    const std::uint64_t reads = use(wanted);
    const std::uint64_t tokens = one.has_value() ? 1 : sequences_.size();
    const double seconds = costs_.residents + costs_.token * static_cast<double>(tokens) +
                           costs_.read * static_cast<double>(reads);
    now_ += seconds;
    longest_step_ = std::max(longest_step_, seconds);
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (one.has_value() && *one != i) continue;
      longest_wait_ = std::max(longest_wait_, now_ - sequences_[i].last);
      sequences_[i].last = now_;
    }
    together_ += one.has_value() ? 0U : 1U;
    turns.note(seconds, reads);
    return tokens;
  }

  Costs& costs() { return costs_; }
  double longest_wait() const { return longest_wait_; }
  double longest_step() const { return longest_step_; }
  // Steps of all since the last call.
  std::uint64_t take_together() { return std::exchange(together_, 0); }

 private:
  struct Sequence {
    std::uint32_t id = 0;
    std::mt19937 random;
    std::vector<std::uint32_t> own;
    double last = 0;  // when it had a token
  };

  std::uint32_t drawn(Sequence& sequence) const {
    const bool is_shared = static_cast<double>(sequence.random() % 1000) < 1000 * costs_.shared;
    const auto number = static_cast<std::uint32_t>(sequence.random());
    return is_shared ? number % costs_.own : costs_.own + number % (kExperts - costs_.own);
  }

  std::vector<std::uint32_t> experts_of(Sequence& sequence) const {
    for (std::uint32_t& expert : sequence.own) {
      if (static_cast<double>(sequence.random() % 1000) < 1000 * costs_.drift) {
        expert = drawn(sequence);
      }
    }
    std::vector<std::uint32_t> experts;
    for (std::uint32_t i = 0; i < costs_.used; ++i) {
      experts.push_back(sequence.own[sequence.random() % sequence.own.size()]);
    }
    return experts;
  }

  // How many of them were not in the cache.
  std::uint64_t use(const std::vector<std::uint32_t>& wanted) {
    std::uint64_t reads = 0;
    for (const std::uint32_t expert : wanted) {
      reads += cache_.erase({used_[expert], expert}) == 0 ? 1U : 0U;
      used_[expert] = ++uses_;
      cache_.emplace(used_[expert], expert);
      if (cache_.size() > costs_.cached) cache_.erase(cache_.begin());
    }
    return reads;
  }

  Costs costs_;
  std::vector<Sequence> sequences_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> cache_;  // last use, expert
  std::vector<std::uint64_t> used_ = std::vector<std::uint64_t>(kExperts);
  std::uint64_t uses_ = 0;
  double now_ = 0, longest_wait_ = 0, longest_step_ = 0;
  std::uint64_t together_ = 0;
};

double seconds_of_trial(std::uint32_t sequences) {
  return DecodeTurns::stretch_seconds(sequences) *
         (sequences + TurnTrial::kArms * (sequences + 1.0));
}

// Tokens a second of so many at once, behind the first trial.
double rate(const Costs& costs, std::uint32_t sequences, TurnUse use) {
  Machine machine(costs);
  for (std::uint32_t id = 0; id < sequences; ++id) machine.add(id);
  DecodeTurns turns(use);
  (void)machine.run(turns, sequences > 1 ? 1.1 * seconds_of_trial(sequences) : 10);
  return machine.run(turns, 25);
}

// The cost model knows no answer: it is computed for each number of sequences, cache and share of
// what they have in common, some of which are faster together, some by turns.
TEST(DecodeTurns, SeveralAreNeverSlowerThanOne) {
  int faster_together = 0;
  int faster_by_turns = 0;
  for (const double shared : {0.0, 0.3, 0.9}) {
    for (const std::size_t cached : {150U, 600U}) {
      for (const std::uint32_t sequences : {2U, 4U, 8U}) {
        const Costs costs{.cached = cached, .shared = shared};
        const double alone = rate(costs, 1, TurnUse::kTried);
        const double together = rate(costs, sequences, TurnUse::kNever);
        const double by_turns = rate(costs, sequences, TurnUse::kAlways);
        const double tried = rate(costs, sequences, TurnUse::kTried);
        (together > by_turns ? faster_together : faster_by_turns) += 1;
        EXPECT_GE(tried, 0.96 * std::max(together, by_turns))
            << shared << " " << cached << " " << sequences << ": " << together << " " << by_turns;
        // A stretch begins with what the others have left in the cache: of one's own, nothing.
        const double refill =
            costs.read * std::min<double>(static_cast<double>(costs.cached), costs.own);
        const double least = alone * (1 - refill / DecodeTurns::stretch_seconds(sequences));
        EXPECT_GE(tried, 0.97 * least)
            << shared << " " << cached << " " << sequences << ": " << together << " " << by_turns;
      }
    }
  }
  EXPECT_GT(faster_together, 3);
  EXPECT_GT(faster_by_turns, 3);
}

TEST(DecodeTurns, WithoutReadsNothingIsTried) {
  Machine machine({.cached = kExperts, .read = 0});
  for (std::uint32_t id = 0; id < 4; ++id) machine.add(id);
  DecodeTurns turns(TurnUse::kTried);
  (void)machine.run(turns, 60);  // until all has been read once
  (void)machine.take_together();
  double steps = 0;
  for (int i = 0; i < 10000; ++i) steps += machine.step(turns) == 4 ? 1 : 0;
  EXPECT_EQ(machine.take_together(), 10000U);
  EXPECT_EQ(steps, 10000);
}

TEST(DecodeTurns, NoneWaitsLongerThanItMay) {
  for (const std::uint32_t sequences : {2U, 3U, 4U, 8U, 16U}) {
    for (const double token : {0.004, 0.1, 2.0}) {  // a step longer than a stretch too
      Machine machine({.token = token});
      for (std::uint32_t id = 0; id < sequences; ++id) machine.add(id);
      DecodeTurns turns(TurnUse::kAlways);
      for (int i = 0; i < 3000; ++i) (void)machine.step(turns);
      const double most =
          std::max(DecodeTurns::kMostWait, (sequences - 1) * machine.longest_step());
      EXPECT_LE(machine.longest_wait(), most + 2 * machine.longest_step())
          << sequences << " at once, steps of " << machine.longest_step();
    }
  }
}

// Others that come and go do not push one back.
TEST(DecodeTurns, NoneWaitsLongerWhereOthersComeAndGo) {
  Machine machine({});
  std::mt19937 random(5);
  machine.add(0);
  machine.add(1);
  machine.add(2);
  DecodeTurns turns(TurnUse::kAlways);
  for (int i = 0; i < 20000; ++i) {
    if (random() % 20 == 0) {
      machine.remove(2);
      machine.add(2);
    }
    (void)machine.step(turns);
  }
  EXPECT_LE(machine.longest_wait(), DecodeTurns::kMostWait + 2 * machine.longest_step());
}

// Prompts that come all the time leave no whole stretch to measure: then all decode together.
TEST(DecodeTurns, ATrialThatIsInterruptedIsGivenUp) {
  Machine machine({});
  for (std::uint32_t id = 0; id < 4; ++id) machine.add(id);
  DecodeTurns turns(TurnUse::kTried);
  (void)machine.run(turns, 6);  // into the first arm
  (void)machine.take_together();
  for (int i = 0; i < 60; ++i) {
    turns.interrupt();
    (void)machine.step(turns);
  }
  (void)machine.take_together();
  for (int i = 0; i < 60; ++i) {
    turns.interrupt();
    (void)machine.step(turns);
  }
  EXPECT_EQ(machine.take_together(), 60U);
}

TEST(DecodeTurns, FollowsWhatChanges) {
  Machine machine({});
  for (std::uint32_t id = 0; id < 4; ++id) machine.add(id);
  DecodeTurns turns(TurnUse::kTried);
  const double round = seconds_of_trial(4) * (1 + TurnTrial::kHeldRounds);
  (void)machine.run(turns, seconds_of_trial(4) * 1.5);
  (void)machine.take_together();
  (void)machine.run(turns, 20);
  EXPECT_EQ(machine.take_together(), 0U) << "by turns while they share nothing";
  machine.costs().shared = 1;
  machine.costs().drift = 0.2;
  (void)machine.run(turns, 2.2 * round);
  (void)machine.take_together();
  const double rate = machine.run(turns, 10);
  EXPECT_GT(static_cast<double>(machine.take_together()), rate / 4 * 9) << "together now";
}

TEST(DecodeTurns, NamesAreThoseOfTheFlag) {
  ASSERT_OK_AND_ASSIGN(const TurnUse use, parse_turn_use("off"));
  EXPECT_EQ(use, TurnUse::kNever);
  test::expect_error(parse_turn_use("sometimes").status(), StatusCode::kInvalidArgument,
                     {"--turns", "sometimes"});
}

}  // namespace
}  // namespace moepack::decode_turns_test

// Which of the sequences that could decode do so in the next step: all together, or one for a
// stretch of steps, then the next (turn_trial.h).
//
// By turns, none waits longer than kMostWait seconds for its next token while others have theirs,
// as long as a step takes no longer than a stretch; else each has a step in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/schedule/turn_trial.h"

namespace moepack {

enum class TurnUse : std::uint8_t { kTried, kNever, kAlways };

// "auto", "off" or "on"; kInvalidArgument, naming --turns, for any other name.
Result<TurnUse> parse_turn_use(std::string_view name);

// No clock of its own: steps say what they took. One thread at a time.
class DecodeTurns {
 public:
  static constexpr double kMostWait = 4.0;
  static constexpr double kMostStretch = 1.5;

  explicit DecodeTurns(TurnUse use) : use_(use) {}

  // Seconds that one of so many sequences (>= 2) decodes before the next.
  static double stretch_seconds(std::size_t sequences);

  // `ids`: of the sequences that could decode, each once, at least one. The index of the one that
  // does, or nullopt: all. Followed by note().
  std::optional<std::size_t> next(std::span<const std::uint32_t> ids);
  // That step took `seconds` (> 0), and `reads` experts were read for it.
  void note(double seconds, std::uint64_t reads);
  // A step came between in which a prompt was computed and each sequence had a token.
  void interrupt();

 private:
  struct Waiting {
    std::uint32_t id = 0;
    std::uint64_t turn = 0;  // its last one, or that of the moment it came: the least is next
  };

  void meet(std::span<const std::uint32_t> ids);
  void begin_stretch(bool is_whole);
  void break_stretch();
  bool is_stretch_over() const;
  std::size_t whose_turn(std::span<const std::uint32_t> ids);
  TurnTrial& trial();

  const TurnUse use_;
  std::vector<Waiting> waiting_;   // in the order of the last step's ids
  std::vector<TurnTrial> trials_;  // of 2 sequences, of 3, ...
  std::uint64_t turns_ = 0;
  // Of the stretch.
  std::optional<std::uint32_t> current_;  // whose turn it is
  std::uint32_t steps_ = 0;
  double seconds_ = 0, longest_step_ = 0;
  bool is_whole_ = false;
  std::size_t stepping_ = 0;  // sequences of the step that next() gave
};

}  // namespace moepack

// Counts what the lanes do, for reports and for the adaptation of the hot set. The counts that
// adaptation goes by fade, so that a change of topic outweighs what came before it.
#pragma once

#include <cstdint>

#include "runtime/placement/lane_use.h"

namespace moepack {

// Of one thread. Nothing is allocated after the constructor.
class LaneCounter {
 public:
  // The most tokens that recent() remembers behind fade(): their counts are halved until no layer
  // has more.
  static constexpr std::uint64_t kRecentTokens = 256;

  LaneCounter(const ExpertShape& shape, std::uint32_t experts_per_token);

  // A pass through a layer, of any number of tokens.
  void note_call(std::uint32_t layer);
  void note_use(std::uint32_t layer, std::uint32_t expert, bool is_hot);
  void note_times(std::uint32_t layer, const LaneMicroseconds& times);
  void note_fallback(LaneFallback reason);

  const LaneUse& all() const { return all_; }  // since the beginning
  const LaneUse& recent() const { return recent_; }
  // After each request.
  void fade();

 private:
  LaneUse all_;
  LaneUse recent_;
};

}  // namespace moepack

// Which logits come first: the higher ones, of equal ones that with the lower id. Decoding waits
// for that at every token: many are compared at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moepack {

struct RankedLogit {
  float logit = 0;
  std::int32_t id = 0;
};

inline bool ranks_before(const RankedLogit& a, const RankedLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The first that is NaN or +infinity, which no logit may be.
std::optional<std::size_t> first_not_a_logit(std::span<const float> logits);

// The id that ranks first. `logits`: one at least, none NaN.
std::int32_t highest_logit(std::span<const float> logits);

// The `count` that rank first, or all where there are fewer, in order; -infinity, which nothing can
// draw, is left out. None is NaN. What was in `best` goes, its memory stays.
void best_logits(std::span<const float> logits, std::size_t count, std::vector<RankedLogit>& best);

}  // namespace moepack

// Which logits come first: the higher ones, of equal ones that with the lower id. Decoding waits
// for that at every token: many are compared at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

struct RankedLogit {
  float logit = 0;
  std::int32_t id = 0;
};

inline bool ranks_before(const RankedLogit& a, const RankedLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// kCorrupt, with the id, where one is NaN or +infinity, which no logit may be.
Status check_logits(std::span<const float> logits);

// The error for logits that are all -infinity.
Status no_finite_logit();

// The id that ranks first. `logits`: one at least, none NaN.
std::int32_t highest_logit(std::span<const float> logits);

// The `count` that rank first, or all where there are fewer, in order; -infinity, which nothing can
// draw, is left out. None is NaN. What was in `best` goes, its memory stays.
void best_logits(std::span<const float> logits, std::size_t count, std::vector<RankedLogit>& best);

}  // namespace moepack

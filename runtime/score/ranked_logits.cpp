#include "runtime/score/ranked_logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "formats/base/remedies.h"

namespace moepack {
namespace {

// Logits that are looked at together: most parts have none that ranks among the first, and many
// lanes find that out, where one comparison after the other takes ten times as long.
constexpr std::size_t kPart = 1024;
constexpr std::size_t kLanes = 16;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Calls `use` with each part and where it begins, as long as it gives true.
template <typename Use>
void for_each_part(std::span<const float> logits, const Use& use) {
  for (std::size_t i = 0; i < logits.size(); i += kPart) {
    if (!use(logits.subspan(i, std::min(kPart, logits.size() - i)), i)) return;
  }
}

float highest_of(std::span<const float> part) {
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  std::size_t i = 0;
  for (; i + kLanes <= part.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = std::max(lanes[j], part[i + j]);
  }
  for (; i < part.size(); ++i) lanes[0] = std::max(lanes[0], part[i]);
  return *std::max_element(lanes.begin(), lanes.end());
}

// On the bits, because compilers can compare integers many at a time.
bool is_not_a_logit(float value) {
  constexpr std::int32_t kInfinity = 0x7f800000;
  const auto bits = std::bit_cast<std::int32_t>(value);
  return (bits == kInfinity) | ((bits & 0x7fffffff) > kInfinity);
}

// Leaves the first `count` of `best`, in no order; returns the last one's logit.
float keep_first(std::size_t count, std::vector<RankedLogit>& best) {
  const auto last = best.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(best.begin(), last, best.end(), ranks_before);
  best.resize(count);
  return best.back().logit;
}

}  // namespace

Status check_logits(std::span<const float> logits) {
  Status status = Status::ok();
  for_each_part(logits, [&](std::span<const float> part, std::size_t begin) {
    unsigned bad = 0;
    for (const float value : part) bad |= is_not_a_logit(value) ? 1U : 0U;
    if (bad == 0) return true;
    const auto at = std::find_if(part.begin(), part.end(), is_not_a_logit);
    const std::size_t id = begin + static_cast<std::size_t>(at - part.begin());
    status = make_error(StatusCode::kCorrupt, Where{},
                        "the logit of token " + std::to_string(id) + " is " +
                            (std::isnan(*at) ? "not a number" : "infinite"),
                        kNotFiniteRemedy);
    return false;
  });
  return status;
}

Status no_finite_logit() {
  return make_error(StatusCode::kCorrupt, Where{}, "no token has a finite logit", kNotFiniteRemedy);
}

std::int32_t highest_logit(std::span<const float> logits) {
  std::span<const float> best_part = logits.first(1);
  float best = logits.front();
  for_each_part(logits, [&](std::span<const float> part, std::size_t) {
    const float highest = highest_of(part);
    if (highest > best) {
      best = highest;
      best_part = part;
    }
    return true;
  });
  const auto at = std::find(best_part.begin(), best_part.end(), best);
  return static_cast<std::int32_t>(&*at - logits.data());
}

void best_logits(std::span<const float> logits, std::size_t count, std::vector<RankedLogit>& best) {
  best.clear();
  if (count == 0) return;
  // Of what comes later only higher ones rank among the first.
  float least = kNever;
  for_each_part(logits, [&](std::span<const float> part, std::size_t begin) {
    if (!(highest_of(part) > least)) return true;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (!(part[i] > least)) continue;
      best.push_back({part[i], static_cast<std::int32_t>(begin + i)});
      if (best.size() == 2 * count) least = keep_first(count, best);
    }
    return true;
  });
  if (best.size() > count) keep_first(count, best);
  std::sort(best.begin(), best.end(), ranks_before);
}

}  // namespace moepack

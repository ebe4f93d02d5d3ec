// Which logits come first, against the standard library's orders.
#include "runtime/score/ranked_logits.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::ranked_logits_test {
namespace {

std::int32_t first_maximum(const std::vector<float>& values) {
  return static_cast<std::int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// Whole numbers around zero, of both signs of it, so that the highest stands there often.
TEST(HighestLogit, IsTheFirstMaximum) {
  std::mt19937 random(5);
  for (const std::size_t size : {1U, 2U, 15U, 16U, 17U, 1023U, 1024U, 1025U, 2049U, 5000U}) {
    for (const int most : {0, 1, 3, 1000000}) {
      std::vector<float> values(size);
      for (float& value : values) {
        value = static_cast<float>(
            static_cast<int>(random() % (2U * static_cast<unsigned>(most) + 1)) - most);
        if (random() % 2 == 0) value = -value;
      }
      EXPECT_EQ(highest_logit(values), first_maximum(values)) << size << " up to " << most;
    }
  }
}

// All that have a probability, sorted and cut.
std::vector<RankedLogit> sorted_first(const std::vector<float>& values, std::size_t count) {
  std::vector<RankedLogit> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isinf(values[i])) all.push_back({values[i], static_cast<std::int32_t>(i)});
  }
  std::sort(all.begin(), all.end(), ranks_before);
  all.resize(std::min(all.size(), count));
  return all;
}

// Few different values, some of them minus infinity.
TEST(BestLogits, AreTheFirstOfAllInOrder) {
  std::mt19937 random(9);
  std::vector<RankedLogit> best;
  for (const std::size_t size : {1U, 40U, 1024U, 3000U, 20000U}) {
    for (const unsigned values : {1U, 5U, 300U, 1000000U}) {
      std::vector<float> logits(size);
      for (float& logit : logits) {
        logit = random() % 9 == 0 ? -INFINITY : static_cast<float>(random() % values) - 100.0F;
      }
      for (const std::size_t count : {0U, 1U, 2U, 40U, 700U, 30000U}) {
        best_logits(logits, count, best);
        const std::vector<RankedLogit> expected = sorted_first(logits, count);
        ASSERT_EQ(best.size(), expected.size());
        for (std::size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].id, expected[i].id) << size << " logits, rank " << i << " of " << count;
          ASSERT_EQ(best[i].logit, expected[i].logit);
        }
      }
    }
  }
}

TEST(CheckLogits, NamesTheFirstNanOrInfinity) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values(2500, -INFINITY);
  values[7] = Limits::max();
  EXPECT_OK(check_logits(values));
  EXPECT_OK(check_logits({}));
  for (const float bad :
       {Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    for (const std::size_t at : {0U, 1023U, 1024U, 2499U}) {
      std::vector<float> damaged = values;
      damaged[at] = bad;
      damaged.back() = bad;
      test::expect_error(check_logits(damaged), StatusCode::kCorrupt,
                         {"token " + std::to_string(at) + " is "});
    }
  }
}

TEST(HighestLogit, WhereverItStands) {
  std::vector<float> values(3000, std::numeric_limits<float>::lowest());
  for (std::size_t at = 0; at < values.size(); at += 7) {
    values[at] = -1.0F;
    EXPECT_EQ(highest_logit(values), static_cast<std::int32_t>(at));
    values[at] = std::numeric_limits<float>::lowest();
  }
}

}  // namespace
}  // namespace moepack::ranked_logits_test

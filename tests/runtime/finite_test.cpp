#include "runtime/model/finite.h"

#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::finite_test {
namespace {

using Limits = std::numeric_limits<float>;

TEST(Finite, EveryFiniteNumberAndNoOther) {
  EXPECT_TRUE(all_finite(std::vector<float>{0.0F, -0.0F, Limits::max(), Limits::lowest(),
                                            Limits::min(), Limits::denorm_min()}));
  EXPECT_TRUE(all_finite({}));
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                          -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    for (std::size_t at = 0; at < 37; ++at) {
      std::vector<float> values(37, 1.0F);
      values[at] = bad;
      EXPECT_FALSE(all_finite(values)) << at;
    }
  }
}

TEST(Finite, WhereverTheValueLiesThatIsNot) {
  ThreadPool pool(2);
  std::vector<float> values(100000, 1.0F);
  EXPECT_TRUE(all_finite(pool, values, 4096));
  EXPECT_TRUE(all_finite(pool, {}, 4096));
  for (const std::size_t at : {std::size_t{0}, std::size_t{50000}, values.size() - 1}) {
    values[at] = Limits::quiet_NaN();
    EXPECT_FALSE(all_finite(pool, values, 4096)) << at;
    values[at] = 1.0F;
  }
}

TEST(Finite, NamesLayerAndToken) {
  std::vector<float> inputs(3 * 4, 1.0F);
  std::vector<float> logits(3 * 2, 1.0F);
  EXPECT_OK(check_finite(7, 100, 3, inputs, logits));
  logits[5] = Limits::infinity();
  test::expect_error(check_finite(7, 100, 3, inputs, logits), StatusCode::kCorrupt,
                     {"layer 7, token 102", "not finite"});
  inputs[4] = Limits::quiet_NaN();
  test::expect_error(check_finite(7, 100, 3, inputs, logits), StatusCode::kCorrupt,
                     {"layer 7, token 101"});
}

}  // namespace
}  // namespace moepack::finite_test

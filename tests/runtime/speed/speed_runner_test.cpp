// The tests of `bench` on a small model: what is timed and counted, and what is not.
#include "runtime/speed/speed_runner.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <memory>

#include "tests/support/converted_model.h"
#include "tests/support/tiny_model.h"

namespace moepack::speed_runner_test {
namespace {

class SpeedRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_ / "checkpoint", {});
    const auto model = test::convert_for_test(dir_ / "checkpoint", dir_);
    ASSERT_FALSE(model.empty());
    EngineOptions options = test::fast_options(model);
    options.sequences = 2;
    options.context = 64;
    ASSERT_OK_AND_ASSIGN(engine_, Engine::open(options));
  }

  std::uint64_t uses(std::uint64_t tokens) const {
    return tokens * engine_->config().num_layers * engine_->config().experts_per_token;
  }

  test::TempDir dir_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(SpeedRunnerTest, CountsTimedRunsAlone) {
  SpeedRunner runner(*engine_, {.repetitions = 3, .warm_up = true});
  ASSERT_OK_AND_ASSIGN(const SpeedResult result,
                       runner.run({.prompt = 0, .generated = 4, .depth = 7}));
  EXPECT_EQ(result.samples_ns.size(), 3U);
  EXPECT_EQ(result.experts.hits + result.experts.misses, uses(3 * 4));
  EXPECT_EQ(result.experts.misses, 0U);  // the cache holds them all, and was filled
  EXPECT_EQ(result.stages.total(), 0);
  const std::vector<double> rates = result.samples_ts();
  EXPECT_DOUBLE_EQ(rates.front(), 4e9 / result.samples_ns.front());
}

TEST_F(SpeedRunnerTest, DepthGoesUpAndDownBetweenTests) {
  SpeedRunner runner(*engine_, {.repetitions = 1, .warm_up = false});
  double first = 0;
  for (const std::uint64_t depth : {0U, 20U, 5U, 20U}) {
    ASSERT_OK_AND_ASSIGN(const SpeedResult result,
                         runner.run({.prompt = 0, .generated = 2, .depth = depth}));
    if (depth == 0) first = result.token_bytes;
    // Keys and values grow by the same bytes with every position.
    const double of_position = (result.token_bytes - first) / std::max<double>(1, double(depth));
    EXPECT_EQ(of_position > 0, depth > 0);
    EXPECT_EQ(of_position, static_cast<double>(static_cast<std::uint64_t>(of_position)));
  }
  EXPECT_GT(first, static_cast<double>(engine_->model_size().token_bytes));
}

TEST_F(SpeedRunnerTest, StagesAddUpToTheSamples) {
  engine_->stage_times().start();
  SpeedRunner runner(*engine_, {.repetitions = 2, .warm_up = true});
  ASSERT_OK_AND_ASSIGN(const SpeedResult result,
                       runner.run({.prompt = 16, .generated = 4, .depth = 0}));
  double seconds = 0;
  for (const double ns : result.samples_ns) seconds += ns / 1e9;
  EXPECT_GE(result.stages.total(), seconds);
  EXPECT_GT(result.stages.of(Stage::kHead), 0);
  EXPECT_EQ(result.token_bytes, 0);  // a prompt's tokens share what they read
}

TEST_F(SpeedRunnerTest, MemoryIsMeasuredWhereThereIsAMeter) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ReadRateMeter> meter, ReadRateMeter::create(1));
  const SpeedTest test{.prompt = 0, .generated = 1, .depth = 0};
  for (const std::uint32_t repetitions : {1U, 4U}) {
    SpeedRunner measured(*engine_,
                         {.repetitions = repetitions, .warm_up = false, .meter = meter.get()});
    ASSERT_OK_AND_ASSIGN(const SpeedResult result, measured.run(test));
    // A mean and not a sum.
    const double rate = meter->measure(0.05);
    EXPECT_GT(result.read_rate, rate / 3);
    EXPECT_LT(result.read_rate, rate * 3);
  }
  SpeedRunner alone(*engine_, {.repetitions = 1, .warm_up = false});
  ASSERT_OK_AND_ASSIGN(const SpeedResult result, alone.run(test));
  EXPECT_EQ(result.read_rate, 0);
}

TEST_F(SpeedRunnerTest, RefusesWhatDoesNotFit) {
  SpeedRunner runner(*engine_, {});
  EXPECT_FALSE(runner.run({.prompt = 65, .generated = 0, .depth = 0}).is_ok());
  EXPECT_FALSE(runner.run({.prompt = 0, .generated = 0, .depth = 3}).is_ok());
  EXPECT_TRUE(runner.run({.prompt = 30, .generated = 2, .depth = 32}).is_ok());
}

TEST(SpeedTestName, IsLlamaBenchs) {
  EXPECT_EQ(speed_test_name({.prompt = 512, .generated = 0, .depth = 0}), "pp512");
  EXPECT_EQ(speed_test_name({.prompt = 0, .generated = 128, .depth = 4096}), "tg128 @ d4096");
  EXPECT_EQ(speed_test_name({.prompt = 16, .generated = 4, .depth = 16}), "pp16+tg4 @ d16");
}

}  // namespace
}  // namespace moepack::speed_runner_test

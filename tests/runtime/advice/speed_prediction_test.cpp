// Predicted speeds against numbers worked out by hand.
#include "runtime/advice/speed_prediction.h"

#include <gtest/gtest.h>

#include "runtime/advice/lane_shares.h"

namespace moepack::speed_prediction_test {
namespace {

// Two layers, two experts a token of 100 bytes; computing an expert takes 1 s, the residents 3 s,
// the states 2 s; a read alone 4 s, each further one 2 s more.
class Prediction : public ::testing::Test {
 protected:
  TokenWork work_{.layers = 2,
                  .experts_per_token = 2,
                  .record_bytes = 100,
                  .resident_bytes = 300,
                  .state_bytes = 40};
  ComputeRates compute_{.residents = 100, .experts = 100, .memory = 20};
  ReadRates disk_{.one = 25, .many = 50};
  ReadAhead ahead_{};

  double seconds(double hit_rate) const {
    return 1 / predict_speed(work_, compute_, disk_, ahead_, hit_rate).tokens_per_second;
  }
};

TEST_F(Prediction, ALayerByMisses) {
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 0), 2);  // two experts computed
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 1),
                   5);  // read 4, then its own second
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 2),
                   7);  // reads 4 + 2, the last computed
}

TEST_F(Prediction, ComputingHidesReadsThatAreFaster) {
  disk_ = {.one = 1000, .many = 1000};  // a read takes .1 s
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 1), 2);
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 2), 2);
}

TEST_F(Prediction, OfATokenAtSeveralHitRates) {
  EXPECT_DOUBLE_EQ(seconds(1), 3 + 2 + 2 * 2);
  EXPECT_DOUBLE_EQ(seconds(0), 3 + 2 + 2 * 7);
  // No, one or two of a layer's experts miss with .25, .5, .25: .25 * 2 + .5 * 5 + .25 * 7 = 4.75.
  EXPECT_DOUBLE_EQ(seconds(0.5), 3 + 2 + 2 * 4.75);
  // .81, .18, .01: 1.62 + .9 + .07 = 2.59.
  EXPECT_NEAR(seconds(0.9), 3 + 2 + 2 * 2.59, 1e-9);
}

TEST_F(Prediction, BytesAndTheDisksShare) {
  const SpeedPrediction half = predict_speed(work_, compute_, disk_, ahead_, 0.5);
  EXPECT_DOUBLE_EQ(half.missed_bytes, 200);  // of 2 layers x 2 experts x 100
  EXPECT_DOUBLE_EQ(half.disk_share, 2 * 2.75 / 14.5);
  EXPECT_DOUBLE_EQ(predict_speed(work_, compute_, disk_, ahead_, 1).disk_share, 0);
}

// Of 300 bytes of residents 100 are the head: a layer's mixer takes (200 / 100 + 40 / 20) / 2 = 2
// s.
TEST_F(Prediction, ReadsAheadHideBehindTheMixer) {
  work_.head_bytes = 100;
  ahead_ = {.experts = 1, .used = 0.5};
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 0), 2);
  // One missed, half a read begun (1 s, hidden), a quarter saved: latency 2, .75 * 2, its own 1 s.
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 1), 2 + 1.5 + 1);
  // Two missed, one begun (2 s, hidden), half saved: latency 2, 1.5 * 2, then the last one's
  // second.
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 2), 2 + 3 + 1);
  // What the mixer does not hide is waited for, and then the disk is at work already.
  ahead_.experts = 2;
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, ahead_, 2), 2 + 1 * 2 + 1);
}

TEST_F(Prediction, WithoutARateThereIsNoSpeed) {
  disk_ = {};
  EXPECT_EQ(predict_speed(work_, compute_, disk_, ahead_, 0.5).tokens_per_second, 0);
  EXPECT_DOUBLE_EQ(seconds(1), 9);  // nothing is missed
  compute_.experts = 0;
  EXPECT_EQ(predict_speed(work_, compute_, disk_, ahead_, 1).tokens_per_second, 0);
}

TEST(LaneShares, DivideTheUses) {
  const LaneShares alike =
      predict_lanes(0.25, 0.25, 0.5);  // half of the pack holds 2/3 of the cold
  EXPECT_DOUBLE_EQ(alike.vram, 0.25);
  EXPECT_DOUBLE_EQ(alike.ram, 0.5);
  EXPECT_DOUBLE_EQ(alike.ssd, 0.25);
  const LaneShares skewed = predict_lanes(0.7, 0.25, 0.5);  // by a profile
  EXPECT_DOUBLE_EQ(skewed.vram, 0.7);
  EXPECT_NEAR(skewed.ram, 0.2, 1e-12);
  EXPECT_NEAR(skewed.ssd, 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(predict_lanes(0, 0, 1).ram, 1);
  EXPECT_DOUBLE_EQ(predict_lanes(1, 1, 0).vram, 1);
  EXPECT_DOUBLE_EQ(predict_lanes(0.25, 0.25, 1).ssd, 0);
}

}  // namespace
}  // namespace moepack::speed_prediction_test

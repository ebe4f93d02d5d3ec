// Predicted speeds against numbers worked out by hand.
#include "runtime/advice/speed_prediction.h"

#include <gtest/gtest.h>

namespace moepack {
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

  double seconds(double hit_rate) const {
    return 1 / predict_speed(work_, compute_, disk_, hit_rate).tokens_per_second;
  }
};

TEST_F(Prediction, ALayerByMisses) {
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, 0), 2);  // two experts computed
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, 1), 5);  // read 4, then its own second
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, 2), 7);  // reads 4 + 2, the last computed
}

TEST_F(Prediction, ComputingHidesReadsThatAreFaster) {
  disk_ = {.one = 1000, .many = 1000};  // a read takes .1 s
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, 1), 2);
  EXPECT_DOUBLE_EQ(layer_seconds(work_, compute_, disk_, 2), 2);
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
  const SpeedPrediction half = predict_speed(work_, compute_, disk_, 0.5);
  EXPECT_DOUBLE_EQ(half.missed_bytes, 200);  // of 2 layers x 2 experts x 100
  EXPECT_DOUBLE_EQ(half.disk_share, 2 * 2.75 / 14.5);
  EXPECT_DOUBLE_EQ(predict_speed(work_, compute_, disk_, 1).disk_share, 0);
}

TEST_F(Prediction, WithoutARateThereIsNoSpeed) {
  disk_ = {};
  EXPECT_EQ(predict_speed(work_, compute_, disk_, 0.5).tokens_per_second, 0);
  EXPECT_DOUBLE_EQ(seconds(1), 9);  // nothing is missed
  compute_.experts = 0;
  EXPECT_EQ(predict_speed(work_, compute_, disk_, 1).tokens_per_second, 0);
}

}  // namespace
}  // namespace moepack

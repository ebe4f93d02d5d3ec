// What is made of recorded inputs: who sees which token, Hessians against plain sums in double, and
// the target of down.
#include "quant/expert_statistics.h"

#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "quant/quantize_matrix.h"
#include "tests/support/random_matrix.h"
#include "tests/support/recorded_experts.h"

namespace moepack::expert_statistics_test {
namespace {

using test::kExperts;
using test::kHidden;
using test::kSerial;
using test::kWidth;
using test::random_activations;
using test::random_expert;

TEST(LayerInputs, EveryTokenIsSeenOnceAndHeldOutFromAllOrNone) {
  for (std::uint64_t tokens : {1U, 7U, 100U, 5000U}) {
    const LayerActivations a = random_activations(tokens);
    const LayerInputs inputs(a, kExperts);
    std::set<std::uint32_t> held;
    std::set<std::uint32_t> trained;
    std::size_t uses = 0;
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      const auto check = [&](std::span<const InputSample> samples, std::set<std::uint32_t>& seen) {
        for (std::size_t i = 0; i < samples.size(); ++i) {
          const std::size_t at = 2 * samples[i].token;
          const std::size_t slot = a.experts[at] == e ? at : at + 1;
          ASSERT_EQ(a.experts[slot], e);
          ASSERT_FLOAT_EQ(samples[i].weight, a.weights[slot] * a.weights[slot]);
          ASSERT_TRUE(i == 0 || samples[i - 1].token < samples[i].token);
          seen.insert(samples[i].token);
        }
      };
      check(inputs.training(e), trained);
      check(inputs.held_out(e), held);
      uses += inputs.samples(e);
    }
    EXPECT_EQ(uses, 2 * tokens);
    EXPECT_EQ(inputs.samples(4), 0U);
    for (const InputSample& s : inputs.layer_training(100)) EXPECT_FALSE(held.contains(s.token));
    for (const InputSample& s : inputs.layer_held_out(100)) EXPECT_FALSE(trained.contains(s.token));
    if (tokens >= 100) {
      const auto share = static_cast<double>(held.size()) / static_cast<double>(tokens);
      EXPECT_NEAR(share, 0.1, 0.03) << tokens;
    }
  }
}

TEST(ExpertStatistics, TheHessianIsTheWeightedMeanShrunk) {
  const LayerActivations a = random_activations(4000);
  const LayerInputs inputs(a, kExperts);
  const LayerHessian layer = layer_hessian(inputs, 2000, kSerial);
  EXPECT_EQ(layer.samples, 2000);
  const InputStatistics found = gate_up_statistics(inputs, layer, 1);
  const auto mean_of = [&](std::span<const InputSample> samples) {
    Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(kHidden, kHidden);
    double total = 0;
    for (const InputSample& s : samples) {
      Eigen::VectorXd x(kHidden);
      for (std::size_t i = 0; i < kHidden; ++i) {
        x(static_cast<Eigen::Index>(i)) =
            static_cast<double>(bf16_to_f32(a.inputs[s.token * kHidden + i]));
      }
      sum += static_cast<double>(s.weight) * x * x.transpose();
      total += static_cast<double>(s.weight);
    }
    return Eigen::MatrixXd(sum / total);
  };
  const auto own = static_cast<double>(inputs.training(1).size());
  const double mine = own / (own + 256);
  Eigen::MatrixXd expected =
      mine * mean_of(inputs.training(1)) + (1 - mine) * mean_of(inputs.layer_training(2000));
  const double samples = 1 / (mine * mine / own + (1 - mine) * (1 - mine) / 2000);
  const double pull = 4.0 * kHidden / (4.0 * kHidden + samples);
  const Eigen::VectorXd diagonal = expected.diagonal();
  expected *= 1 - pull;
  expected.diagonal() = diagonal;
  EXPECT_LT((found.hessian.cast<double>() - expected).norm(), 1e-5 * expected.norm());
}

TEST(ExpertStatistics, WithNothingLostTheTargetOfDownIsDown) {
  const LayerActivations a = random_activations(4000);
  const LayerInputs inputs(a, kExperts);
  const ExpertMatrices w = random_expert();
  const DownProblem problem = down_problem(inputs, w, w.gate, w.up, 2);
  EXPECT_LT((problem.target - w.down).norm(), 0.01F * w.down.norm());
}

// The error that gate and up leave is smaller with the target than with the original weights, on
// tokens that had no part in it.
TEST(ExpertStatistics, TheTargetMakesUpForGateAndUp) {
  const LayerActivations a = random_activations(6000);
  const LayerInputs inputs(a, kExperts);
  const ExpertMatrices w = random_expert();
  const Matrix gate = 0.8F * w.gate + 0.5F * testing::random_weights(kWidth, kHidden, 9);
  const Matrix up = 0.8F * w.up + 0.5F * testing::random_weights(kWidth, kHidden, 10);
  const DownProblem problem = down_problem(inputs, w, gate, up, 2);
  const InputStatistics& in = problem.inputs;
  const float plain = (w.down * in.held_out - in.wanted).norm();
  const float adapted = (problem.target * in.held_out - in.wanted).norm();
  EXPECT_LT(adapted, 0.8F * plain);
}

TEST(ExpertStatistics, AnExpertThatSawNothingLeansOnTheLayer) {
  for (std::uint64_t tokens : {1U, 40U, 3000U}) {
    const LayerActivations a = random_activations(tokens);
    const LayerInputs inputs(a, kExperts);
    const ExpertMatrices w = random_expert();
    const InputStatistics in = gate_up_statistics(inputs, layer_hessian(inputs, 1000, kSerial), 4);
    EXPECT_EQ(in.samples, 0U);
    EXPECT_TRUE(in.hessian.allFinite());
    const auto factor = factor_hessian(in.hessian, kGptqDamping);
    const QuantizedMatrix q =
        quantize_matrix(QuantMethod::kGptq, w.gate, w.gate, kWidth, {.bits = 2, .group_size = 32},
                        in, factor.has_value() ? &*factor : nullptr);
    EXPECT_TRUE(std::isfinite(q.after)) << tokens;
    const DownProblem problem = down_problem(inputs, w, w.gate, w.up, 4);
    EXPECT_TRUE(problem.target.allFinite()) << tokens;
    EXPECT_LT((problem.target - w.down).norm(), 0.05F * w.down.norm()) << tokens;
  }
}

// GPTQ is kept only where held-out inputs prefer it.
TEST(QuantizeMatrix, GptqThatHeldOutInputsDislikeIsDropped) {
  const Matrix w = testing::random_weights(64, 128, 11);
  InputStatistics in;
  in.is_known = true;
  in.hessian = testing::hessian_of(testing::random_inputs(128, 4000, 12));
  const auto factor = factor_hessian(in.hessian, kGptqDamping);
  ASSERT_TRUE(factor.has_value());
  const MatrixFormat format{.bits = 2, .group_size = 64};
  const auto run = [&] {
    return quantize_matrix(QuantMethod::kGptq, w, w, 64, format, in, &*factor);
  };
  EXPECT_EQ(run().method, QuantMethod::kGptq);
  // With inputs of a single column no column can make up for another.
  in.held_out = Matrix::Identity(128, 128);
  const QuantizedMatrix kept = run();
  EXPECT_EQ(kept.method, QuantMethod::kGrid);
  EXPECT_LE(kept.after, kept.before);
}

}  // namespace
}  // namespace moepack::expert_statistics_test

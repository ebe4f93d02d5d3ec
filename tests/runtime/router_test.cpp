#include "runtime/model/router.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace moepack::router_test {
namespace {

TEST(Router, WeightsAreTheRenormalisedProbabilities) {
  const std::vector<float> logits{0.0F, 2.0F, -1.0F, 1.0F, 0.5F};
  const std::vector<Assignment> chosen = route(SoftmaxRouterSpec{}, logits.data(), 1, 5, 3);
  ASSERT_EQ(chosen.size(), 3U);
  EXPECT_EQ(chosen[0].expert, 1U);
  EXPECT_EQ(chosen[1].expert, 3U);
  EXPECT_EQ(chosen[2].expert, 4U);
  const double sum = std::exp(2.0) + std::exp(1.0) + std::exp(0.5);
  EXPECT_NEAR(chosen[0].weight, std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(chosen[1].weight, std::exp(1.0) / sum, 1e-6);
  EXPECT_NEAR(chosen[2].weight, std::exp(0.5) / sum, 1e-6);
}

TEST(Router, WithoutRenormalisingWeightsAreTheProbabilities) {
  const std::vector<float> logits{0.0F, 2.0F, -1.0F, 1.0F, 0.5F};
  const std::vector<Assignment> chosen =
      route(SoftmaxRouterSpec{.renormalise = false}, logits.data(), 1, 5, 2);
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].expert, 1U);
  EXPECT_EQ(chosen[1].expert, 3U);
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit});
  EXPECT_NEAR(chosen[0].weight, std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(chosen[1].weight, std::exp(1.0) / sum, 1e-6);
}

// The correction chooses; the weights are the sigmoids alone.
TEST(Router, SigmoidsAreCorrectedOnlyToChoose) {
  const std::vector<float> logits{0.0F, 2.0F, -1.0F, 1.0F, 0.5F};
  const Routing routing(SigmoidRouterSpec{.scale = 2.5F}, {0.0F, -0.9F, 0.8F, 0.0F, 0.0F});
  const std::vector<Assignment> chosen = route(routing, logits.data(), 1, 5, 2);
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].expert, 2U);
  EXPECT_EQ(chosen[1].expert, 3U);
  const double first = 1 / (1 + std::exp(1.0));
  const double second = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(chosen[0].weight, 2.5 * first / (first + second), 1e-6);
  EXPECT_NEAR(chosen[1].weight, 2.5 * second / (first + second), 1e-6);
  const Routing as_they_are(SigmoidRouterSpec{.renormalise = false}, routing.correction);
  EXPECT_NEAR(route(as_they_are, logits.data(), 1, 5, 2)[0].weight, first, 1e-6);
}

// Groups of three: by their two best the first (0.5 + 0.45) comes before the second, whose best is
// better (0.9 + 0), and the third (0.3 + 0.3).
TEST(Router, GroupsAreChosenByTheirTwoBest) {
  const std::vector<float> logits(9, 0.0F);
  const std::vector<float> correction{0.0F, -0.05F, -9.0F, 0.4F, -0.5F, -9.0F, -0.2F, -0.2F, -0.2F};
  const auto experts = [&](std::uint32_t kept) {
    std::vector<std::uint32_t> ids;
    const Routing routing(SigmoidRouterSpec{.groups = 3, .kept_groups = kept}, correction);
    for (const Assignment& use : route(routing, logits.data(), 1, 9, 3)) ids.push_back(use.expert);
    return ids;
  };
  EXPECT_EQ(experts(1), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(experts(2), (std::vector<std::uint32_t>{3, 0, 1}));
  EXPECT_EQ(experts(3), (std::vector<std::uint32_t>{3, 0, 1}));
  // Equal groups: the first.
  const Routing equal(SigmoidRouterSpec{.groups = 3, .kept_groups = 1}, {});
  EXPECT_EQ(route(equal, logits.data(), 1, 9, 1)[0].expert, 0U);
}

// After renormalising, so that they sum to anything.
TEST(Router, ExpertsHaveScalesOfTheirOwn) {
  const std::vector<float> logits{0.5F, 2.0F, -1.0F, 1.0F};
  Routing routing(SoftmaxRouterSpec{.renormalise = true, .has_expert_scales = true});
  const std::vector<Assignment> plain = route(routing, logits.data(), 1, 4, 2);
  routing.expert_scales = {7, 0.5F, 11, 3};
  const std::vector<Assignment> scaled = route(routing, logits.data(), 1, 4, 2);
  ASSERT_EQ(scaled.size(), 2U);
  EXPECT_EQ(scaled[0].expert, 1U);
  EXPECT_EQ(scaled[1].expert, 3U);
  EXPECT_EQ(scaled[0].weight, plain[0].weight * 0.5F);
  EXPECT_EQ(scaled[1].weight, plain[1].weight * 3);
}

TEST(Router, TiesGoToTheLowerId) {
  const std::vector<float> logits(6, 1.25F);
  const std::vector<Assignment> chosen = route(SoftmaxRouterSpec{}, logits.data(), 1, 6, 2);
  EXPECT_EQ(chosen[0].expert, 0U);
  EXPECT_EQ(chosen[1].expert, 1U);
}

// Against sorting all experts by probability and id; many of few values are equal.
TEST(Router, ChoosesTheFirstInOrder) {
  std::mt19937 random(3);
  for (const std::uint32_t values : {3U, 20U, 1000000U}) {
    for (const std::uint32_t top_k : {1U, 2U, 8U, 64U}) {
      std::vector<float> logits(64);
      for (float& logit : logits) {
        logit = static_cast<float>(random() % values) * 6.0F / static_cast<float>(values);
      }
      const std::vector<Assignment> chosen =
          route(SoftmaxRouterSpec{.renormalise = false}, logits.data(), 1, 64, top_k);
      std::vector<std::uint32_t> order(64);
      std::iota(order.begin(), order.end(), 0U);
      std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
      });
      ASSERT_EQ(chosen.size(), top_k);
      for (std::uint32_t k = 0; k < top_k; ++k) {
        ASSERT_EQ(chosen[k].slot, k);
        ASSERT_EQ(chosen[k].expert, order[k]) << values << " values, rank " << k;
      }
    }
  }
}

TEST(Router, ExtremeLogitsStayFinite) {
  const std::vector<float> logits{1e30F, -1e30F, 88.0F, 1000.0F};
  const std::vector<Assignment> chosen = route(SoftmaxRouterSpec{}, logits.data(), 1, 4, 2);
  EXPECT_EQ(chosen[0].expert, 0U);
  EXPECT_EQ(chosen[0].weight, 1.0F);
  EXPECT_EQ(chosen[1].weight, 0.0F);
}

TEST(Router, EveryTokenGetsItsOwnRow) {
  const std::vector<float> logits{0, 9, 0, /* token 1 */ 9, 0, 0, /* token 2 */ 0, 0, 9};
  const std::vector<Assignment> chosen = route(SoftmaxRouterSpec{}, logits.data(), 3, 3, 1);
  ASSERT_EQ(chosen.size(), 3U);
  for (std::uint32_t t = 0; t < 3; ++t) EXPECT_EQ(chosen[t].token, t);
  EXPECT_EQ(chosen[0].expert, 1U);
  EXPECT_EQ(chosen[1].expert, 0U);
  EXPECT_EQ(chosen[2].expert, 2U);
}

// Cache-aware routing against the rule, expert by expert: the J first, then of the M first those
// that are there, then the rest.
TEST(Router, CacheAwareRoutingFollowsItsRule) {
  std::mt19937 random(11);
  constexpr std::uint32_t kExperts = 40;
  constexpr std::uint32_t kChosen = 8;
  std::uint64_t changed = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto always = static_cast<std::uint32_t>(random() % (kChosen + 1));
    const auto among = kChosen + static_cast<std::uint32_t>(random() % (kExperts - kChosen + 1));
    std::vector<float> logits(kExperts);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) * 0.01F;
    std::vector<std::uint8_t> resident(kExperts);
    for (std::uint8_t& there : resident) there = random() % 3 == 0 ? 1 : 0;
    const auto order =
        route(SoftmaxRouterSpec{.renormalise = false}, logits.data(), 1, kExperts, among);
    std::vector<std::uint32_t> expected;
    for (std::uint32_t r = 0; r < always; ++r) expected.push_back(r);
    for (const int there : {1, 0}) {
      for (std::uint32_t r = always; r < among && expected.size() < kChosen; ++r) {
        if (resident[order[r].expert] == there) expected.push_back(r);
      }
    }
    std::sort(expected.begin(), expected.end());
    std::vector<float> scratch(kExperts);
    std::vector<Assignment> ranked(among);
    std::vector<Assignment> chosen(kChosen);
    const std::uint32_t unchanged = route_row_cached(SoftmaxRouterSpec{}, logits.data(), 7, always,
                                                     resident, scratch, ranked, chosen);
    float sum = 0;
    for (const std::uint32_t rank : expected) sum += order[rank].weight;
    std::uint32_t kept = 0;
    for (std::uint32_t k = 0; k < kChosen; ++k) {
      ASSERT_EQ(chosen[k].expert, order[expected[k]].expert);
      ASSERT_EQ(chosen[k].slot, k);
      ASSERT_EQ(chosen[k].token, 7U);
      ASSERT_EQ(chosen[k].weight, order[expected[k]].weight / sum);
      kept += expected[k] < kChosen ? 1U : 0U;
    }
    ASSERT_EQ(unchanged, kept);
    changed += kChosen - kept;
  }
  EXPECT_GT(changed, 1000U);
}

// Nothing to prefer, or nothing to choose from: the exact choice, to the bit.
TEST(Router, CacheAwareRoutingCanBeExact) {
  std::mt19937 random(12);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(24);
    for (float& logit : logits) logit = static_cast<float>(random() % 50) * 0.1F;
    const auto exact = route(SoftmaxRouterSpec{}, logits.data(), 1, 24, 6);
    struct Case {
      std::uint32_t always;
      std::uint32_t among;
      std::uint32_t residents;  // 2: at random
    };
    for (const Case& c : {Case{6, 24, 2}, Case{0, 6, 2}, Case{0, 24, 0}, Case{2, 24, 1}}) {
      std::vector<std::uint8_t> resident(24);
      for (std::uint8_t& there : resident) {
        there = static_cast<std::uint8_t>(c.residents == 2 ? random() % 2 : c.residents);
      }
      std::vector<float> scratch(24);
      std::vector<Assignment> ranked(c.among);
      std::vector<Assignment> chosen(6);
      EXPECT_EQ(route_row_cached(SoftmaxRouterSpec{}, logits.data(), 0, c.always, resident, scratch,
                                 ranked, chosen),
                6U);
      for (std::size_t k = 0; k < 6; ++k) {
        ASSERT_EQ(chosen[k].expert, exact[k].expert);
        ASSERT_EQ(chosen[k].weight, exact[k].weight);
      }
    }
  }
}

}  // namespace
}  // namespace moepack::router_test

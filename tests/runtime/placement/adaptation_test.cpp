// The adaptation of the hot set to what requests use: synthetic routing of topics that change,
// through the counter, the weighting and the planner, against the best set that never changes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "runtime/placement/hot_plan.h"
#include "runtime/placement/lane_counter.h"
#include "runtime/placement/slot_planner.h"

namespace moepack::adaptation_test {
namespace {

constexpr std::uint32_t kLayers = 6;
constexpr std::uint32_t kExperts = 64;
constexpr std::uint32_t kPerToken = 4;
constexpr std::uint64_t kSlots = kLayers * kExperts / 4;
constexpr ExpertShape kShape{kLayers, kExperts};

std::vector<std::uint32_t> experts_of_layers() {
  return std::vector<std::uint32_t>(kLayers, kExperts);
}

// A topic: how probable each expert of each layer is, by Zipf's law over an order of its own.
class Topic {
 public:
  explicit Topic(std::uint32_t seed) : random_(seed) {
    for (auto& order : order_) {
      order.resize(kExperts);
      std::iota(order.begin(), order.end(), 0U);
      std::shuffle(order.begin(), order.end(), random_);
    }
    for (std::uint32_t rank = 0; rank < kExperts; ++rank) {
      weights_.push_back(1 / std::pow(rank + 1.0, 1.2));
    }
  }

  // The distinct experts of a token in a layer.
  std::vector<std::uint32_t> choose(std::uint32_t layer) {
    std::discrete_distribution<std::uint32_t> ranks(weights_.begin(), weights_.end());
    std::vector<std::uint32_t> chosen;
    while (chosen.size() < kPerToken) {
      const std::uint32_t expert = order_[layer][ranks(random_)];
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    return chosen;
  }

 private:
  std::mt19937 random_;
  std::vector<std::uint32_t> order_[kLayers];
  std::vector<double> weights_;
};

using Token = std::vector<std::vector<std::uint32_t>>;  // [layer]: its experts
using Request = std::vector<Token>;

Request request_of(Topic& topic, std::size_t tokens) {
  Request request(tokens);
  for (Token& token : request) {
    for (std::uint32_t l = 0; l < kLayers; ++l) token.push_back(topic.choose(l));
  }
  return request;
}

bool is_hot(const HotSet& hot, std::uint32_t layer, std::uint32_t expert) {
  return std::binary_search(hot[layer].begin(), hot[layer].end(), expert);
}

double hit_rate(const HotSet& hot, std::span<const Request> requests) {
  double hits = 0;
  double uses = 0;
  for (const Request& request : requests) {
    for (const Token& token : request) {
      for (std::uint32_t l = 0; l < kLayers; ++l) {
        for (const std::uint32_t expert : token[l]) hits += is_hot(hot, l, expert) ? 1 : 0;
        uses += static_cast<double>(token[l].size());
      }
    }
  }
  return hits / uses;
}

void count(const Request& request, const HotSet& hot, LaneCounter& counter) {
  for (const Token& token : request) {
    for (std::uint32_t l = 0; l < kLayers; ++l) {
      counter.note_call(l);
      for (const std::uint32_t expert : token[l]) {
        counter.note_use(l, expert, is_hot(hot, l, expert));
      }
    }
  }
}

// The set that a profile of exactly these requests gives.
HotSet best_static(std::span<const Request> requests, SlotWeighting weighting) {
  LaneCounter counter(kShape, kPerToken);
  for (const Request& request : requests) count(request, HotSet(kLayers), counter);
  return *plan_hot_experts(counter.all(), weighting, experts_of_layers(), kSlots).set;
}

// What an engine does: hit rate of each request with the set as it is, then a bounded exchange.
std::vector<double> adapted_rates(std::span<const Request> requests, SlotWeighting weighting,
                                  double rate) {
  const std::vector<std::uint32_t> experts = experts_of_layers();
  const std::vector<std::uint64_t> slots = equal_slots(experts);
  HotSet hot = flat_hot_set(experts, kSlots);
  LaneCounter counter(kShape, kPerToken);
  std::vector<double> rates;
  for (const Request& request : requests) {
    rates.push_back(hit_rate(hot, std::span(&request, 1)));
    count(request, hot, counter);
    const auto exchanges =
        plan_exchange(hot, slot_scores(counter.recent(), weighting), slots, rate);
    EXPECT_LE(static_cast<double>(exchanges.size()), std::ceil(rate * kSlots));
    apply_exchange(exchanges, hot);
    counter.fade();
    EXPECT_EQ(hot_count(hot), kSlots);
  }
  return rates;
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

constexpr std::size_t kTopics = 4;
constexpr std::size_t kRequestsOfTopic = 24;

// [topics * requests]: one topic after another.
std::vector<Request> changing_topics() {
  std::vector<Request> requests;
  for (std::uint32_t t = 0; t < kTopics; ++t) {
    Topic topic(t + 1);
    for (std::size_t i = 0; i < kRequestsOfTopic; ++i) {
      requests.push_back(request_of(topic, 48));
    }
  }
  return requests;
}

// The bar: within 5 points of the best set that never changes, over the whole workload with its
// changes, and in each topic's second half of the best set of that topic, known beforehand.
void expect_close_to_static(SlotWeighting weighting) {
  const std::vector<Request> requests = changing_topics();
  const std::vector<double> rates = adapted_rates(requests, weighting, 0.1);
  EXPECT_GT(mean(rates), hit_rate(best_static(requests, weighting), requests) - 0.05);
  for (std::size_t t = 0; t < kTopics; ++t) {
    const auto topic = std::span(requests).subspan(t * kRequestsOfTopic, kRequestsOfTopic);
    const double best = hit_rate(best_static(topic, weighting), topic);
    const auto settled =
        std::span(rates).subspan(t * kRequestsOfTopic + kRequestsOfTopic / 2, kRequestsOfTopic / 2);
    EXPECT_GT(mean(settled), best - 0.05) << "topic " << t << ", best " << best;
    EXPECT_GT(best, 0.6) << "a workload with something to gain";
  }
}

TEST(Adaptation, FollowsTopicsFlat) { expect_close_to_static(SlotWeighting::kFlat); }
TEST(Adaptation, FollowsTopicsBalanced) { expect_close_to_static(SlotWeighting::kBalanced); }
TEST(Adaptation, FollowsTopicsPressure) { expect_close_to_static(SlotWeighting::kPressure); }

TEST(Adaptation, WithoutARateNothingMoves) {
  const std::vector<Request> requests = changing_topics();
  const std::vector<double> rates = adapted_rates(requests, SlotWeighting::kFlat, 0);
  const HotSet first = flat_hot_set(experts_of_layers(), kSlots);
  EXPECT_NEAR(mean(rates), hit_rate(first, requests), 1e-12);
}

TEST(LaneCounter, RecentCountsFadeAndAllStay) {
  LaneCounter counter(kShape, kPerToken);
  for (int i = 0; i < 4 * static_cast<int>(LaneCounter::kRecentTokens); ++i) {
    for (std::uint32_t e = 0; e < kPerToken; ++e) counter.note_use(2, e, e == 0);
  }
  counter.note_fallback(LaneFallback::kFetched);
  counter.fade();
  EXPECT_EQ(counter.recent().layers[2].uses(1), LaneCounter::kRecentTokens);
  EXPECT_EQ(counter.all().layers[2].uses(1), 4 * LaneCounter::kRecentTokens);
  EXPECT_EQ(counter.all().fallbacks[static_cast<std::size_t>(LaneFallback::kFetched)], 1U);
}

TEST(HotPlan, TakesWhatTheProfileUsesMost) {
  LaneUse use = empty_lane_use({.num_layers = 3, .num_experts = 4}, 2);
  use.layers[1].cold = {5, 0, 30, 15};
  use.layers[2].cold = {0, 40, 10, 0};
  const std::vector<std::uint32_t> dense_first = {0, 4, 4};
  const HotPlan plan = plan_hot_experts(use, SlotWeighting::kFlat, dense_first, 3);
  ASSERT_TRUE(plan.set.has_value());
  EXPECT_EQ(*plan.set, (HotSet{{}, {2, 3}, {1}}));
  EXPECT_DOUBLE_EQ(plan.hit_share, 0.85);
  EXPECT_TRUE(plan.reason.empty());
  // Room left over goes to experts that nobody used.
  EXPECT_EQ(hot_count(*plan_hot_experts(use, SlotWeighting::kFlat, dense_first, 7).set), 7U);
  const HotPlan none = plan_hot_experts(use, SlotWeighting::kFlat, dense_first, 0);
  EXPECT_FALSE(none.set.has_value());
  EXPECT_NE(none.reason.find("--vram-mb"), std::string::npos);
}

}  // namespace
}  // namespace moepack::adaptation_test

#include "runtime/store/kept_records.h"

#include <gtest/gtest.h>
#include <fstream>
#include <numeric>
#include <random>
#include <utility>

#include "runtime/store/record_cache.h"
#include "tests/runtime/store/mixed_pack.h"
#include "tests/support/status_matchers.h"

namespace moepack::kept_records_test {
namespace {

ExpertProfile profile_of(std::vector<std::vector<std::uint64_t>> counts) {
  ExpertProfile profile;
  profile.model = "m";
  profile.shape = {static_cast<std::uint32_t>(counts.size()),
                   static_cast<std::uint32_t>(counts.front().size())};
  profile.experts_per_token = 1;
  for (auto& layer : counts) {
    profile.layers.emplace_back();
    profile.layers.back().counts = std::move(layer);
  }
  return profile;
}

std::uint64_t a_page(std::uint32_t, std::uint32_t) { return 4000; }

TEST(KeptRecords, HottestFirstByShareOfTheirLayer) {
  // The second layer counted ten times as many tokens.
  const ExpertProfile profile = profile_of({{1, 6, 3, 0}, {50, 0, 20, 30}});
  EXPECT_EQ(hottest_records(profile, a_page, 1 << 20).keys,
            (std::vector<RecordKey>{1, 4, 2, 7, 6, 0}))
      << "what was never used is not kept";
  const KeptRecords three = hottest_records(profile, a_page, 3 * 4096 + 4095);
  EXPECT_EQ(three.keys, (std::vector<RecordKey>{1, 4, 2}));
  EXPECT_EQ(three.bytes, 3U * 4096);
  EXPECT_TRUE(hottest_records(profile, a_page, 4095).keys.empty());
}

TEST(KeptRecords, WhatDoesNotFitIsPassedOver) {
  const ExpertProfile profile = profile_of({{9, 8, 7, 0}});
  const auto sizes = [](std::uint32_t, std::uint32_t e) -> std::uint64_t {
    return e == 1 ? 8192 : 4096;
  };
  EXPECT_EQ(hottest_records(profile, sizes, 2 * 4096).keys, (std::vector<RecordKey>{0, 2}));
}

// A profile may name experts of a layer that has none in this model.
TEST(KeptRecords, NothingIsKeptOfALayerWithoutExperts) {
  const ExpertProfile profile = profile_of({{9, 8, 7, 0}, {1, 0, 2, 3}});
  const auto sizes = [](std::uint32_t layer, std::uint32_t) -> std::uint64_t {
    return layer == 0 ? 0 : 4096;
  };
  EXPECT_EQ(hottest_records(profile, sizes, 1 << 20).keys, (std::vector<RecordKey>{7, 6, 4}));
}

TEST(KeptRecords, RanksAreTakenInTurn) {
  ExpertProfile profile;
  profile.shape = {2, 4};
  profile.layers.resize(2);
  profile.layers[0].ranks = {3, 1};
  profile.layers[1].ranks = {0, 2, 1};
  EXPECT_EQ(hottest_records(profile, a_page, 1 << 20).keys,
            (std::vector<RecordKey>{3, 4, 1, 6, 5}));
}

TEST(KeptRecords, AProfileOfAnotherModelIsRefused) {
  test::TempDir dir;
  const std::string file = dir / "profile.json";
  std::ofstream(file) << expert_profile_text(profile_of({{1, 6, 3, 0}, {5, 0, 2, 3}}));
  ProfiledModel model{
      .name = "m", .source_fingerprint = 1, .shape = {2, 4}, .experts_per_token = 1};
  ASSERT_OK_AND_ASSIGN(const KeptRecords kept, read_kept_records(file, model, a_page, 1 << 20));
  EXPECT_EQ(kept.keys.size(), 6U);
  ProfiledModel other = model;
  other.name = "n";
  test::expect_error(read_kept_records(file, other, a_page, 1 << 20).status(),
                     StatusCode::kInvalidArgument, {file, "n and m"});
  other = model;
  other.shape = {2, 5};
  EXPECT_FALSE(read_kept_records(file, other, a_page, 1 << 20).is_ok());
  EXPECT_FALSE(read_kept_records(dir / "none.json", model, a_page, 1 << 20).is_ok());
}

// Half of the budget is kept: whatever else is asked for, in batches as large as max_batch(), what
// is kept stays once it came, and no batch is refused.
TEST(KeptRecords, StayInTheStoreOnceTheyCame) {
  const test::MixedPack pack(4);
  const std::vector<RecordKey> keys{0, 7, 14};
  KeptRecords kept{.keys = keys, .bytes = 3 * record_memory_bytes(pack.largest())};
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      ExpertStore::open(pack.dir.path(), pack.manifest,
                        {.cache_bytes = 6 * record_memory_bytes(pack.largest()), .kept = kept}));
  EXPECT_EQ(store->max_batch(0), 3U);
  for (const RecordKey key : keys) {
    const auto layer = static_cast<std::uint32_t>(key / test::kMixedExperts);
    test::expect_batch(pack, *store, layer,
                       {static_cast<std::uint32_t>(key % test::kMixedExperts)});
  }
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::uint32_t> experts(test::kMixedExperts);
    std::iota(experts.begin(), experts.end(), 0U);
    std::shuffle(experts.begin(), experts.end(), random);
    const auto layer = static_cast<std::uint32_t>(random() % 4);
    experts.resize(1 + random() % store->max_batch(layer));
    test::expect_batch(pack, *store, layer, experts);
    for (const RecordKey key : keys) {
      std::vector<std::uint8_t> is_there(test::kMixedExperts);
      store->find_resident(static_cast<std::uint32_t>(key / test::kMixedExperts), is_there);
      ASSERT_EQ(is_there[key % test::kMixedExperts], 1) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace moepack::kept_records_test

#include "runtime/store/record_cache.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::record_cache_test {
namespace {

constexpr std::uint64_t kPage = kRecordAlignment;

// The least recently used cache as a list, with none of the cache's machinery.
class ModelCache {
 public:
  struct Record {
    RecordKey key = 0;
    std::uint64_t memory = 0;
    int pins = 0;
    bool forgotten = false;
    RecordCache::Slot slot = 0;  // what the cache called it
    std::uint64_t bytes = 0;
    int fill = 0;  // what stands in every byte
  };

  explicit ModelCache(std::uint64_t budget) : budget_(budget) {}

  Record* find(RecordKey key) {
    for (Record& r : records_) {
      if (r.key == key && !r.forgotten) return &r;
    }
    return nullptr;
  }
  void use(RecordKey key) {
    const auto at = std::find_if(records_.begin(), records_.end(),
                                 [&](const Record& r) { return r.key == key && !r.forgotten; });
    std::rotate(at, at + 1, records_.end());  // the last is the most recently used
  }
  std::uint64_t pinned() const {
    std::uint64_t bytes = 0;
    for (const Record& r : records_) bytes += r.pins > 0 ? r.memory : 0;
    return bytes;
  }
  std::uint64_t total() const {
    std::uint64_t bytes = 0;
    for (const Record& r : records_) bytes += r.memory;
    return bytes;
  }
  bool has_room(std::uint64_t memory) const { return pinned() + memory <= budget_; }
  void add(Record record) {
    while (total() + record.memory > budget_) {
      records_.erase(std::find_if(records_.begin(), records_.end(),
                                  [](const Record& r) { return r.pins == 0; }));
    }
    records_.push_back(record);
  }
  void drop_ended() {
    records_.erase(std::remove_if(records_.begin(), records_.end(),
                                  [](const Record& r) { return r.forgotten && r.pins == 0; }),
                   records_.end());
  }
  std::vector<Record>& records() { return records_; }

 private:
  std::uint64_t budget_;
  std::vector<Record> records_;  // in the order of use
};

class RandomUse {
 public:
  RandomUse(std::uint64_t budget, std::uint32_t seed)
      : budget_(budget), random_(seed), cache_(budget, least_recently_used()), model_(budget) {}

  void step() {
    switch (random_() % 5) {
      case 0:
      case 1:
        ask(random_() % 12);
        break;
      case 2:
      case 3:
        unpin_one();
        break;
      default:
        if (random_() % 4 == 0) forget_one();
    }
    ASSERT_EQ(cache_.pinned_bytes(), model_.pinned());
    ASSERT_LE(cache_.allocated_bytes(), budget_);
    ASSERT_GE(cache_.allocated_bytes(), model_.total());
    for (const ModelCache::Record& r : model_.records()) {
      if (r.pins > 0) check_bytes(r);
    }
  }

  std::size_t refused() const { return refused_; }
  std::size_t found() const { return found_; }

 private:
  // Sizes of one to three pages, most of them not whole pages.
  static std::uint64_t bytes_of(RecordKey key) { return 3000 + key % 3 * 4000; }

  void check_bytes(const ModelCache::Record& r) {
    const std::span<const std::byte> memory = cache_.memory(r.slot);
    ASSERT_EQ(memory.size(), r.bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % kPage, 0U);
    const auto fill = static_cast<std::byte>(r.fill);
    ASSERT_TRUE(
        std::all_of(memory.begin(), memory.end(), [&](const std::byte b) { return b == fill; }))
        << "another record has the memory of " << r.key;
  }

  void ask(RecordKey key) {
    ModelCache::Record* known = model_.find(key);
    const auto slot = cache_.pin(key);
    ASSERT_EQ(slot.has_value(), known != nullptr) << "record " << key;
    if (known != nullptr) {
      ++found_;
      ASSERT_EQ(*slot, known->slot);
      ++known->pins;
      check_bytes(*known);
      model_.use(key);
      return;
    }
    ModelCache::Record record{.key = key, .memory = record_memory_bytes(bytes_of(key))};
    const auto added = cache_.add(key, bytes_of(key));
    ASSERT_EQ(added.is_ok(), model_.has_room(record.memory)) << added.status().message();
    if (!added.is_ok()) {
      ++refused_;
      return;
    }
    record.slot = added.value();
    record.bytes = bytes_of(key);
    record.pins = 1;
    record.fill = static_cast<int>(random_() % 256);
    std::memset(cache_.memory(record.slot).data(), record.fill, record.bytes);
    model_.add(record);
  }

  // A random record with pins, or null.
  ModelCache::Record* any_pinned() {
    std::vector<ModelCache::Record*> pinned;
    for (ModelCache::Record& r : model_.records()) {
      if (r.pins > 0) pinned.push_back(&r);
    }
    return pinned.empty() ? nullptr : pinned[random_() % pinned.size()];
  }

  void unpin_one() {
    ModelCache::Record* record = any_pinned();
    if (record == nullptr) return;
    cache_.unpin(record->slot);
    --record->pins;
    model_.drop_ended();
  }

  void forget_one() {
    ModelCache::Record* record = any_pinned();
    if (record == nullptr) return;
    cache_.forget(record->slot);
    record->forgotten = true;
  }

  std::uint64_t budget_;
  std::mt19937 random_;
  RecordCache cache_;
  ModelCache model_;
  std::size_t refused_ = 0;
  std::size_t found_ = 0;
};

// Finds, refuses, evicts and counts as the list does, step by step, and never gives the memory of a
// pinned record away.
TEST(RecordCache, BehavesLikeAListOfRecords) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    RandomUse use((4 + 3 * seed) * kPage + 100, seed);
    for (int i = 0; i < 3000; ++i) {
      use.step();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed << ", step " << i;
    }
    EXPECT_GT(use.found(), 100U);
    if (seed < 3) {
      EXPECT_GT(use.refused(), 0U) << "the budget was never short";
    }
  }
}

TEST(RecordCache, PaddingCountsInTheBudget) {
  EXPECT_EQ(record_memory_bytes(1), kPage);
  EXPECT_EQ(record_memory_bytes(kPage), kPage);
  EXPECT_EQ(record_memory_bytes(kPage + 1), 2 * kPage);
  RecordCache cache(3 * kPage - 1, least_recently_used());
  ASSERT_OK(cache.add(1, 100));
  EXPECT_EQ(cache.allocated_bytes(), kPage);
  ASSERT_OK(cache.add(2, kPage));
  // 100 + 4096 + 1 bytes would fit.
  test::expect_error(cache.add(3, 1).status(), StatusCode::kInvalidArgument,
                     {"8192 bytes of records in use", "--cache-mb"});
}

// Proposes the largest key, pinned lists and counts being the policy's own matter.
class LargestKeyFirst final : public EvictionPolicy {
 public:
  void used(RecordKey key) override { keys_.push_back(key); }
  void removed(RecordKey key) override {
    keys_.erase(std::remove(keys_.begin(), keys_.end(), key), keys_.end());
  }
  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) override {
    std::optional<RecordKey> best;
    for (const RecordKey key : keys_) {
      if (may_leave(key) && (!best.has_value() || key > *best)) best = key;
    }
    return best;
  }

 private:
  std::vector<RecordKey> keys_;
};

TEST(RecordCache, ThePolicyChoosesAmongWhatIsNotPinned) {
  RecordCache cache(3 * kPage, std::make_unique<LargestKeyFirst>());
  for (const RecordKey key : {7U, 9U, 8U}) {
    ASSERT_OK_AND_ASSIGN(const RecordCache::Slot slot, cache.add(key, kPage));
    if (key != 9) cache.unpin(slot);
  }
  ASSERT_OK_AND_ASSIGN(const RecordCache::Slot slot, cache.add(5, kPage));
  EXPECT_FALSE(cache.pin(8).has_value()) << "9 is pinned, so that 8 is the largest that may go";
  EXPECT_TRUE(cache.pin(9).has_value());
  EXPECT_TRUE(cache.pin(7).has_value());
  cache.unpin(slot);
  EXPECT_TRUE(cache.pin(5).has_value());
}

// A policy with a fault of its own.
class NeverAnything final : public EvictionPolicy {
 public:
  explicit NeverAnything(std::optional<RecordKey> proposal) : proposal_(proposal) {}
  void used(RecordKey /*key*/) override {}
  void removed(RecordKey /*key*/) override {}
  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& /*may_leave*/) override {
    return proposal_;
  }

 private:
  std::optional<RecordKey> proposal_;
};

TEST(RecordCache, APolicyThatGivesNothingOrWhatIsNotThereIsAnError) {
  for (const std::optional<RecordKey> proposal : {std::optional<RecordKey>(), {42U}}) {
    RecordCache cache(kPage, std::make_unique<NeverAnything>(proposal));
    ASSERT_OK_AND_ASSIGN(const RecordCache::Slot slot, cache.add(1, kPage));
    cache.unpin(slot);
    test::expect_error(cache.add(2, kPage).status(), StatusCode::kInvalidArgument, {"policy"});
    EXPECT_TRUE(cache.pin(1).has_value());
  }
}

}  // namespace
}  // namespace moepack::record_cache_test

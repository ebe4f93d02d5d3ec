#include "runtime/store/record_memory.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/large_pages.h"
#include "runtime/store/record_cache.h"
#include "tests/support/status_matchers.h"

namespace moepack::record_memory_test {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargeBudget = 256 * kMebibyte;
constexpr std::uint64_t kSmallBudget = 8 * kMebibyte;

std::uint64_t held_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::span<std::byte> taken(RecordMemory& memory, std::uint64_t bytes) {
  auto result = memory.take(bytes);
  EXPECT_TRUE(result.is_ok());
  return result.value();
}

TEST(RecordMemory, RecordsAreAlignedAndApart) {
  for (const std::uint64_t budget : {kSmallBudget, kLargeBudget}) {
    RecordMemory memory(budget);
    std::vector<std::span<std::byte>> records;
    for (std::uint64_t i = 0; i < 12; ++i) {
      records.push_back(taken(memory, (i % 3 + 1) * 5 * kRecordAlignment));
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(records.back().data()) % kRecordAlignment, 0U);
      std::memset(records.back().data(), static_cast<int>(i), records.back().size());
    }
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i].front(), static_cast<std::byte>(i));
      EXPECT_EQ(records[i].back(), static_cast<std::byte>(i));
    }
    for (std::span<std::byte> record : records) memory.give_back(record);
  }
}

TEST(RecordMemory, AddressesOfARecordServeTheNextOfItsSize) {
  RecordMemory memory(kLargeBudget);
  const auto first = taken(memory, 3 * kRecordAlignment);
  const auto second = taken(memory, 2 * kRecordAlignment);
  memory.give_back(first);
  EXPECT_NE(taken(memory, 2 * kRecordAlignment).data(), first.data());
  EXPECT_EQ(taken(memory, 3 * kRecordAlignment).data(), first.data());
  memory.give_back(second);
  EXPECT_EQ(taken(memory, 2 * kRecordAlignment).data(), second.data());
}

// Records larger than what is left of an area, and larger than any area, begin one of their own.
TEST(RecordMemory, ARecordMayBeLargerThanTheBudget) {
  RecordMemory memory(kLargeBudget);
  EXPECT_EQ(taken(memory, kRecordAlignment).size(), kRecordAlignment);
  EXPECT_EQ(taken(memory, 2 * kLargeBudget).size(), 2 * kLargeBudget);
}

TEST(RecordMemory, HoldsWhatWasAskedForAndTheStatedOverhead) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "SKIPPED: sanitizers hold memory of their own";
#endif
  RecordMemory memory(kLargeBudget);
  const std::uint64_t before = held_bytes();
  std::vector<std::span<std::byte>> records;
  std::uint64_t asked = 0;
  while (asked < 64 * kMebibyte) {
    records.push_back(taken(memory, kMebibyte + 3 * kRecordAlignment));
    std::memset(records.back().data(), 1, records.back().size());
    asked += records.back().size();
  }
  EXPECT_LE(held_bytes(), before + asked + record_memory_overhead(kLargeBudget) + kMebibyte);
  for (std::span<std::byte> record : records) memory.give_back(record);
  EXPECT_LE(held_bytes(), before + record_memory_overhead(kLargeBudget) + kMebibyte);
}

TEST(RecordMemory, SmallCachesHaveNoOverhead) {
  EXPECT_EQ(record_memory_overhead(kSmallBudget), 0U);
  EXPECT_GE(record_memory_overhead(kLargeBudget), kLargePage);
}

}  // namespace
}  // namespace moepack::record_memory_test

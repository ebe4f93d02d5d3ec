// Reads with wide loads against the words one by one: a read that skipped bytes would measure a
// memory faster than there is.
#include "runtime/cpu/read_memory.h"

#include <gtest/gtest.h>
#include <cstring>
#include <random>
#include <vector>

namespace moepack::read_memory_test {
namespace {

TEST(ReadMemory, EveryLevelReadsEveryWord) {
  std::mt19937_64 random(7);
  for (const std::size_t steps : {0U, 1U, 2U, 9U}) {
    std::vector<std::byte> data(steps * kReadStep);
    std::uint64_t expected = 0;
    for (std::size_t at = 0; at < data.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(data.data() + at, &word, sizeof(word));
      expected ^= word;
    }
    for (const CpuLevel level : kCpuLevels) {
      if (!has_cpu_level(level)) continue;
      EXPECT_EQ(xor_words(level, data), expected)
          << cpu_level_name(level) << ", " << data.size() << " bytes";
    }
  }
}

}  // namespace
}  // namespace moepack::read_memory_test

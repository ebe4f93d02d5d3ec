#include "runtime/store/disk_file.h"

#include <gtest/gtest.h>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace moepack::disk_file_test {
namespace {

KnownDisk disk(std::uint64_t device) {
  return {.id = {.device = device, .type = 0xef53, .file_system = 77 * device},
          .rates = {.direct = 1000 * device, .buffered = 900}};
}

TEST(DiskFile, RemembersDisksAndReplacesThem) {
  const test::TempDir dir;
  const auto file = dir / "caches" / "disks.bin";
  EXPECT_FALSE(recall_disk(file, disk(1).id).has_value());
  remember_disk(file, disk(1));
  remember_disk(file, disk(2));
  KnownDisk again = disk(1);
  again.rates.direct = 5;
  remember_disk(file, again);
  ASSERT_TRUE(recall_disk(file, disk(1).id).has_value());
  EXPECT_EQ(recall_disk(file, disk(1).id)->direct, 5U);
  EXPECT_EQ(recall_disk(file, disk(2).id)->direct, 2000U);
  DiskId other_system = disk(2).id;
  other_system.file_system = 1;
  EXPECT_FALSE(recall_disk(file, other_system).has_value());
}

TEST(DiskFile, AnEmptyPathIsNoFile) {
  remember_disk({}, disk(1));
  EXPECT_FALSE(recall_disk({}, disk(1).id).has_value());
}

TEST(DiskFile, DamageIsSeenWhereverItIs) {
  const std::vector<KnownDisk> two{disk(1), disk(2)};
  const std::vector<std::byte> whole = disk_file_bytes(two);
  ASSERT_EQ(disks_of(whole).size(), 2U);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(disks_of(std::span(whole).first(size)).empty()) << size;
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::byte> damaged = whole;
    damaged[i] ^= std::byte{0x10};
    EXPECT_TRUE(disks_of(damaged).empty()) << i;
  }
}

TEST(DiskFile, ADamagedFileIsWrittenAnew) {
  const test::TempDir dir;
  const auto file = dir / "disks.bin";
  std::ofstream(file) << "MOEDISK1 and something else";
  EXPECT_FALSE(recall_disk(file, disk(1).id).has_value());
  remember_disk(file, disk(1));
  EXPECT_TRUE(recall_disk(file, disk(1).id).has_value());
}

TEST(DiskFile, ADiskIsTheSameForItsFiles) {
  const test::TempDir dir;
  std::ofstream(dir / "a") << "a";
  std::ofstream(dir / "b") << "b";
  ASSERT_TRUE(disk_of(dir / "a").has_value());
  EXPECT_EQ(disk_of(dir / "a"), disk_of(dir / "b"));
  EXPECT_FALSE(disk_of(dir / "none").has_value());
}

}  // namespace
}  // namespace moepack::disk_file_test

// What planted files of a system say.
#include "runtime/advice/machine_facts.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace moepack::machine_facts_test {
namespace {

class Facts : public ::testing::Test {
 protected:
  void plant(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  test::TempDir dir_;
};

TEST_F(Facts, Memory) {
  plant("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\nSwapTotal:  70 kB\n");
  plant("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  MemoryFacts facts = memory_facts(dir_.path());
  EXPECT_EQ(facts.total_bytes, 9000U * 1024);
  EXPECT_EQ(facts.available_bytes, 8000U * 1024);
  EXPECT_EQ(facts.swap_bytes, 70U * 1024);
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_FALSE(facts.group_limit_bytes.has_value());
  plant("proc/self/cgroup", "0::/app/part\n");
  plant("sys/fs/cgroup/app/memory.max", "5000000\n");
  plant("sys/fs/cgroup/app/part/memory.max", "max\n");
  EXPECT_EQ(memory_facts(dir_.path()).group_limit_bytes, 5000000U);
}

TEST_F(Facts, MemoryOfVersion1WithoutALimit) {
  plant("proc/self/cgroup", "4:memory:/app\n");
  plant("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(memory_facts(dir_.path()).group_limit_bytes.has_value());
  plant("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(memory_facts(dir_.path()).group_limit_bytes, 4096U);
}

TEST_F(Facts, QuotaOfBothVersions) {
  EXPECT_FALSE(processor_facts(dir_.path()).quota.has_value());
  plant("proc/self/cgroup", "0::/app\n");
  plant("sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_FALSE(processor_facts(dir_.path()).quota.has_value());
  plant("sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_facts(dir_.path()).quota, 1.5);
  plant("proc/self/cgroup", "3:cpu,cpuacct:/app\n");
  plant("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "250000\n");
  plant("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_facts(dir_.path()).quota, 2.5);
}

TEST_F(Facts, TheFileSystemIsThatOfTheLongestMount) {
  const std::string place = std::filesystem::canonical(dir_.path()).string();
  plant("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/root rw\n2 1 8:2 / " + place +
                                   " rw,noatime shared:1 - xfs /dev/fast rw\n3 1 8:3 / " + place +
                                   "more rw - nfs server:/x rw\nnonsense\n");
  const DiskFacts facts = disk_facts(dir_.path(), dir_.path());
  EXPECT_EQ(facts.file_system, "xfs");
  EXPECT_EQ(facts.device, "/dev/fast");
  EXPECT_TRUE(facts.free_bytes.has_value());
}

}  // namespace
}  // namespace moepack::machine_facts_test

// What the machine and its control groups leave, from planted files.
#include "runtime/model/available_memory.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/temp_dir.h"

namespace moepack::available_memory_test {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    plant("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n");
  }
  void plant(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  std::optional<std::uint64_t> available() const { return available_memory_bytes(dir_.path()); }

  test::TempDir dir_;
};

TEST_F(AvailableMemory, OfTheMachineAlone) { EXPECT_EQ(available(), 8000U * 1024); }

TEST_F(AvailableMemory, UnknownIsNotZero) {
  std::filesystem::remove_all(dir_ / "proc");
  EXPECT_FALSE(available().has_value());
}

TEST_F(AvailableMemory, Version2CountsUseButNotWhatCanBeDropped) {
  plant("proc/self/cgroup", "0::/user.slice/app\n");
  plant("sys/fs/cgroup/user.slice/app/memory.max", "1000000\n");
  plant("sys/fs/cgroup/user.slice/app/memory.current", "700000\n");
  EXPECT_EQ(available(), 300000U);
  plant("sys/fs/cgroup/user.slice/app/memory.stat",
        "anon 5\nfile 999999\ninactive_file 300000\nactive_file 100000\nslab_reclaimable 100000\n");
  EXPECT_EQ(available(), 800000U);
  plant("sys/fs/cgroup/user.slice/app/memory.high", "500000\n");
  EXPECT_EQ(available(), 300000U);
}

// Where memory.high is below memory.max, the kernel slows down whoever goes beyond it.
TEST_F(AvailableMemory, ThrottlingIsALimit) {
  plant("proc/self/cgroup", "0::/a/b\n");
  plant("sys/fs/cgroup/a/memory.max", "max\n");
  plant("sys/fs/cgroup/a/memory.high", "6000\n");
  plant("sys/fs/cgroup/a/memory.current", "1000\n");
  plant("sys/fs/cgroup/a/b/memory.high", "max\n");
  plant("sys/fs/cgroup/a/b/memory.max", "7000\n");
  plant("sys/fs/cgroup/a/b/memory.current", "500\n");
  EXPECT_EQ(available(), 5000U);
}

TEST_F(AvailableMemory, SwapIsNotMemory) {
  plant("proc/meminfo",
        "MemTotal: 9000 kB\nMemAvailable: 8000 kB\nSwapTotal: 70000 kB\nSwapFree: 70000 kB\n");
  plant("proc/self/cgroup", "0::/a\n");
  plant("sys/fs/cgroup/a/memory.max", "5000\n");
  plant("sys/fs/cgroup/a/memory.current", "1000\n");
  plant("sys/fs/cgroup/a/memory.swap.max", "max\n");
  plant("sys/fs/cgroup/a/memory.swap.current", "0\n");
  EXPECT_EQ(available(), 4000U);
  std::filesystem::remove_all(dir_ / "sys");
  EXPECT_EQ(available(), 8000U * 1024);
}

TEST_F(AvailableMemory, AncestorsLimitToo) {
  plant("proc/self/cgroup", "0::/user.slice/app\n");
  plant("sys/fs/cgroup/user.slice/app/memory.max", "max\n");
  plant("sys/fs/cgroup/user.slice/app/memory.current", "10\n");
  EXPECT_EQ(available(), 8000U * 1024) << "max is no limit";
  plant("sys/fs/cgroup/user.slice/memory.max", "5000\n");
  plant("sys/fs/cgroup/user.slice/memory.current", "1000\n");
  EXPECT_EQ(available(), 4000U);
  plant("sys/fs/cgroup/memory.max", "3000\n");
  plant("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(available(), 2000U);
}

TEST_F(AvailableMemory, AFullGroupLeavesNothing) {
  plant("proc/self/cgroup", "0::/\n");
  plant("sys/fs/cgroup/memory.max", "1000\n");
  plant("sys/fs/cgroup/memory.current", "1500\n");
  EXPECT_EQ(available(), 0U);
}

TEST_F(AvailableMemory, Version1) {
  plant("proc/self/cgroup", "11:cpu,cpuacct:/other\n4:hugetlb,memory:/docker/abc\n");
  plant("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "900000\n");
  plant("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "500000\n");
  plant("sys/fs/cgroup/memory/docker/abc/memory.stat",
        "inactive_file 1\ntotal_inactive_file 50000\ntotal_active_file 20000\n");
  EXPECT_EQ(available(), 470000U);
}

// A container sees its own group as the mount, under a path that the host knows.
TEST_F(AvailableMemory, MountThatShowsOnlyTheContainersPart) {
  plant("proc/self/cgroup", "4:memory:/docker/abc\n0::/../elsewhere\n");
  plant("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  plant("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available(), 6000U);
}

// A path that leads out of the mount says nothing about groups of like names below it.
TEST_F(AvailableMemory, AGroupOutsideTheMountIsNotLookedForInside) {
  plant("proc/self/cgroup", "0::/../../app\n");
  plant("sys/fs/cgroup/app/memory.max", "1000\n");
  plant("sys/fs/cgroup/app/memory.current", "10\n");
  EXPECT_EQ(available(), 8000U * 1024);
}

TEST_F(AvailableMemory, OddFilesLimitNothing) {
  plant("proc/self/cgroup", "nonsense\n::\n0:\n0::/a\n");
  plant("sys/fs/cgroup/a/memory.max", "many\n");
  plant("sys/fs/cgroup/a/memory.current", "");
  EXPECT_EQ(available(), 8000U * 1024);
}

}  // namespace
}  // namespace moepack::available_memory_test

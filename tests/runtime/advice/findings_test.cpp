// What is said of facts: the level, and what to do.
#include "runtime/advice/findings.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <string>

namespace moepack::findings_test {
namespace {

FindingLevel worst(const std::vector<Finding>& findings) {
  FindingLevel level = FindingLevel::kOk;
  for (const Finding& finding : findings) level = std::max(level, finding.level);
  return level;
}
std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.text + "; " + finding.remedy + "\n";
  return text;
}
void expect_says(const std::vector<Finding>& findings, FindingLevel level, const char* words) {
  EXPECT_EQ(worst(findings), level) << text_of(findings);
  EXPECT_NE(text_of(findings).find(words), std::string::npos) << text_of(findings);
}

TEST(Findings, Disks) {
  DiskFacts facts{.file_system = "ext4", .device = "/dev/x", .free_bytes = 500'000'000'000};
  DiskMeasurement fast;
  fast.rates = {.one = 2e9, .many = 5e9};
  fast.is_direct = true;
  expect_says(disk_findings(facts, "here", fast, ""), FindingLevel::kOk, "5.00 GB/s");
  DiskMeasurement slow = fast;
  slow.rates = {.one = 0.4e9, .many = 0.5e9};
  expect_says(disk_findings(facts, "here", slow, ""), FindingLevel::kNote, "costs 2.0 s");
  slow.rates = {.one = 1e8, .many = 1e8};
  expect_says(disk_findings(facts, "here", slow, ""), FindingLevel::kProblem, "use an SSD");
  fast.is_direct = false;
  expect_says(disk_findings(facts, "here", fast, ""), FindingLevel::kNote, "page cache");
  expect_says(disk_findings(facts, "here", {}, "no reason"), FindingLevel::kNote, "no reason");
  facts.file_system = "nfs4";
  expect_says(disk_findings(facts, "here", fast, ""), FindingLevel::kNote, "local one");
  facts = {.file_system = "ext4", .device = "", .free_bytes = 1000};
  expect_says(disk_findings(facts, "here", fast, ""), FindingLevel::kNote, "free some space");
}

TEST(Findings, Memory) {
  MemoryFacts facts;
  facts.total_bytes = 64'000'000'000;
  facts.available_bytes = 60'000'000'000;
  facts.huge_pages = "madvise";
  expect_says(memory_findings(facts), FindingLevel::kOk, "64.0 GB in all");
  facts.group_limit_bytes = 8'000'000'000;
  expect_says(memory_findings(facts), FindingLevel::kNote, "limits it to 8.0 GB");
  facts.group_limit_bytes.reset();
  facts.available_bytes = 9'000'000'000;
  expect_says(memory_findings(facts), FindingLevel::kNote, "end other programs");
  facts.available_bytes = 60'000'000'000;
  facts.huge_pages = "never";
  expect_says(memory_findings(facts), FindingLevel::kNote, "echo madvise");
}

TEST(Findings, ProcessorsAndLimits) {
  ProcessorFacts facts{.processors = 4, .quota = std::nullopt};
  expect_says(processor_findings(facts, "X", "avx2", 1e10), FindingLevel::kOk, "10.00 GB/s");
  expect_says(processor_findings(facts, "X", "scalar", 0), FindingLevel::kProblem, "AVX2");
  facts.quota = 2.5;
  expect_says(processor_findings(facts, "X", "avx2", 0), FindingLevel::kNote, "give -t 2");
  LimitFacts limits{.descriptors = 1024, .has_uring = true, .uring_lacks = ""};
  expect_says(limit_findings(limits), FindingLevel::kOk, "1024 files");
  limits = {.descriptors = 64, .has_uring = false, .uring_lacks = "Operation not permitted"};
  expect_says(limit_findings(limits), FindingLevel::kNote, "Operation not permitted");
  expect_says(limit_findings(limits), FindingLevel::kNote, "ulimit -n 1024");
}

TEST(Findings, Gpus) {
  expect_says(gpu_findings(std::vector<VulkanDeviceInfo>{}), FindingLevel::kNote, "none");
  expect_says(gpu_findings(unsupported(Where{}, "no loader")), FindingLevel::kNote, "no loader");
  VulkanDeviceInfo device;
  device.name = "G";
  device.type = VulkanDeviceType::kDiscrete;
  expect_says(gpu_findings(std::vector{device}), FindingLevel::kOk, "G, discrete");
  device.lacks = "int8";
  expect_says(gpu_findings(std::vector{device}), FindingLevel::kNote, "lacks int8");
}

}  // namespace
}  // namespace moepack::findings_test

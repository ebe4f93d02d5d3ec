#include <numeric>

#include "shaders/catalog.h"
#include "shaders/read_sum_args.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::vulkan_device_test {
namespace {

using VulkanDeviceTest = VulkanTest;

std::uint32_t sum_on(VulkanDevice& device, const std::vector<std::uint32_t>& values) {
  auto data = device.allocate(values.size() * 4, MemoryKind::kDevice);
  auto sums = device.allocate(4 * 4, MemoryKind::kDevice);
  auto kernel = device.make_kernel({.shader = "read_sum", .constants = {64}});
  EXPECT_TRUE(data.is_ok() && sums.is_ok() && kernel.is_ok());
  EXPECT_TRUE(device.upload(data.value(), 0, std::as_bytes(std::span(values))).is_ok());
  CommandList list(device);
  list.fill(sums.value().handle(), 0, 16, 0);
  list.full_barrier();
  list.dispatch(kernel.value(),
                shader::ReadSumArgs{.data = data.value().address(),
                                    .sums = sums.value().address(),
                                    .vectors = static_cast<std::uint32_t>(values.size() / 4)},
                {4, 1, 1});
  const Status status = device.run(list);
  EXPECT_TRUE(status.is_ok()) << status.message();
  std::vector<std::uint32_t> result(4);
  EXPECT_TRUE(device.download(sums.value(), 0, std::as_writable_bytes(std::span(result))).is_ok());
  return std::accumulate(result.begin(), result.end(), 0U);
}

std::vector<std::uint32_t> numbers() {
  std::vector<std::uint32_t> values(40000);
  std::iota(values.begin(), values.end(), 1U);
  return values;
}

TEST_F(VulkanDeviceTest, RunsAKernelOverUploadedMemory) {
  const std::vector<std::uint32_t> values = numbers();
  EXPECT_EQ(sum_on(device(), values), std::accumulate(values.begin(), values.end(), 0U));
}

TEST_F(VulkanDeviceTest, StagingGivesTheSameAndValidationHasNothingToSay) {
  std::vector<std::string> messages;
  auto opened =
      VulkanDevice::open({.force_staging = true, .validation = [&](const std::string& message) {
                            messages.push_back(message);
                          }});
  if (!opened.is_ok()) GTEST_SKIP() << opened.status().message();
  const std::vector<std::uint32_t> values = numbers();
  EXPECT_FALSE(opened.value()->has_mapped_device_memory());
  EXPECT_EQ(sum_on(*opened.value(), values), std::accumulate(values.begin(), values.end(), 0U));
  EXPECT_TRUE(messages.empty()) << messages.front();
}

TEST_F(VulkanDeviceTest, ABudgetAndAnAllocationAreNeverExceeded) {
  auto opened = VulkanDevice::open({.memory_budget = 1 << 20, .most_allocation = 1 << 19});
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  VulkanDevice& small = *opened.value();
  EXPECT_EQ(small.allocate((1 << 19) + 1, MemoryKind::kDevice).status().code(),
            StatusCode::kInvalidArgument);
  {
    auto first = small.allocate(1 << 19, MemoryKind::kDevice);
    auto second = small.allocate(1 << 18, MemoryKind::kDevice);
    ASSERT_TRUE(first.is_ok() && second.is_ok());
    EXPECT_EQ(small.free_bytes(), 1U << 18);
    EXPECT_EQ(small.allocate(1 << 19, MemoryKind::kDevice).status().code(), StatusCode::kIo);
  }
  EXPECT_EQ(small.free_bytes(), 1U << 20);
}

TEST_F(VulkanDeviceTest, EveryDeviceIsListedAndAWrongOneRefused) {
  auto devices = list_vulkan_devices();
  ASSERT_TRUE(devices.is_ok());
  ASSERT_FALSE(devices.value().empty());
  const auto beyond = static_cast<std::uint32_t>(devices.value().size());
  EXPECT_EQ(VulkanDevice::open({.device = beyond}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(VulkanDeviceTest, APipelineCacheIsTakenBackAndForeignBytesAreIgnored) {
  (void)kernel("read_sum", {64});
  const std::vector<std::byte> saved = device().pipeline_cache();
  EXPECT_FALSE(saved.empty());
  EXPECT_TRUE(device().load_pipeline_cache(saved).is_ok());
  EXPECT_TRUE(device().load_pipeline_cache(std::vector<std::byte>(100, std::byte{7})).is_ok());
  EXPECT_EQ(device().make_kernel({.shader = "no such"}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moepack::vulkan_device_test

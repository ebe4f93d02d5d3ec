// Which GPU is taken, and what is said where none can be; without a GPU.
#include "runtime/vulkan/device_choice.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::device_choice_test {
namespace {

PhysicalDevice device(std::uint32_t index, const char* name, VulkanDeviceType type,
                      const char* lacks = "") {
  PhysicalDevice made;
  made.info.index = index;
  made.info.name = name;
  made.info.type = type;
  made.info.lacks = lacks;
  return made;
}

TEST(DeviceChoice, ADiscreteOneBeforeOthersAndAProcessorLast) {
  const std::vector<PhysicalDevice> devices{device(0, "processor", VulkanDeviceType::kCpu),
                                            device(1, "integrated", VulkanDeviceType::kIntegrated),
                                            device(2, "discrete", VulkanDeviceType::kDiscrete),
                                            device(3, "second", VulkanDeviceType::kDiscrete)};
  const auto best = [&](std::size_t count) {
    const auto chosen = best_device(std::span(devices).first(count), std::nullopt);
    return chosen.is_ok() ? chosen.value().info.name : chosen.status().message();
  };
  EXPECT_EQ(best(4), "discrete");
  EXPECT_EQ(best(2), "integrated");
  EXPECT_EQ(best(1), "processor");
  const auto named = best_device(devices, 3);
  ASSERT_TRUE(named.is_ok());
  EXPECT_EQ(named.value().info.name, "second");
}

TEST(DeviceChoice, WhatLacksSomethingIsLeftOutAndNamed) {
  const std::vector<PhysicalDevice> devices{
      device(0, "old", VulkanDeviceType::kDiscrete, "bufferDeviceAddress"),
      device(1, "small", VulkanDeviceType::kIntegrated)};
  const auto best = best_device(devices, std::nullopt);
  ASSERT_TRUE(best.is_ok());
  EXPECT_EQ(best.value().info.name, "small");
  test::expect_error(best_device(devices, 0).status(), StatusCode::kUnsupported,
                     {"old", "bufferDeviceAddress", "--device"});
  test::expect_error(best_device(devices, 2).status(), StatusCode::kInvalidArgument,
                     {"no Vulkan device 2", "--list-devices"});
  test::expect_error(best_device(std::span(devices).first(1), std::nullopt).status(),
                     StatusCode::kUnsupported, {"old lacks bufferDeviceAddress", "--backend cpu"});
  test::expect_error(best_device({}, std::nullopt).status(), StatusCode::kUnsupported,
                     {"no Vulkan device"});
}

TEST(DeviceChoice, FeaturesThatAreMissingAreNamed) {
  DeviceFeatures features;
  features.enable({}, false);
  EXPECT_EQ(features.missing(), "");
  features.v12.bufferDeviceAddress = VK_FALSE;
  features.core.features.shaderInt64 = VK_FALSE;
  EXPECT_EQ(features.missing(), "shaderInt64, bufferDeviceAddress");
}

}  // namespace
}  // namespace moepack::device_choice_test

// What tests of the Vulkan backend share: one device for all tests of a program, typed buffers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/kernel_set.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// Skips its tests, with the reason, where no device can be used.
class VulkanTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = VulkanDevice::open({.wants_fixed_products = true});
    if (opened.is_ok()) {
      shared().device = std::move(opened).value();
      shared().kernels = std::make_unique<KernelSet>(device());
    } else {
      shared().reason = opened.status().message();
    }
  }
  static void TearDownTestSuite() {
    shared().kernels.reset();
    shared().device.reset();
  }
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << shared().reason;
  }

  static bool has_device() { return shared().device != nullptr; }
  static VulkanDevice& device() { return *shared().device; }

  // GPUs may take numbers below the least normal one for zero (Vulkan's "Precision and Operation of
  // SPIR-V Instructions"); a processor that plays one keeps them.
  static bool may_flush() { return device().info().type != VulkanDeviceType::kCpu; }
  // What a sum of so many products of a weight and an input of at most `largest` may lose by it: of
  // each the scale of a block, times the greatest code and the scale within the block.
  static double flush_bound(std::uint64_t products, double largest) {
    constexpr double kGreatestFactor = 4096;
    return may_flush() ? static_cast<double>(products) * largest * kGreatestFactor *
                             std::numeric_limits<float>::min()
                       : 0;
  }

  // A device buffer with these values.
  template <typename T>
  static DeviceBuffer put(const std::vector<T>& values) {
    DeviceBuffer buffer = make(values.size() * sizeof(T));
    EXPECT_TRUE(device().upload(buffer, 0, std::as_bytes(std::span(values))).is_ok());
    return buffer;
  }
  static DeviceBuffer make(std::uint64_t bytes) {
    auto buffer = device().allocate(bytes, MemoryKind::kDevice);
    EXPECT_TRUE(buffer.is_ok()) << buffer.status().message();
    return std::move(buffer).value();
  }
  template <typename T>
  static std::vector<T> get(const DeviceBuffer& buffer, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(device().download(buffer, 0, std::as_writable_bytes(std::span(values))).is_ok());
    return values;
  }
  // Made once: a driver compiles it, and tests run most of them several times.
  static const VulkanKernel& kernel(std::string_view shader, std::vector<std::uint32_t> constants) {
    const VulkanKernel& made = shared().kernels->get(shader, std::move(constants));
    EXPECT_NE(made.handle(), VK_NULL_HANDLE)
        << shader << ": " << shared().kernels->status().message();
    return made;
  }
  static void run(CommandList& list) {
    const Status status = device().run(list);
    ASSERT_TRUE(status.is_ok()) << status.message();
  }

 private:
  // What the tests of a suite have in common, from its beginning to its end.
  struct Shared {
    std::unique_ptr<VulkanDevice> device;
    std::unique_ptr<KernelSet> kernels;
    std::string reason;  // why there is no device
  };
  static Shared& shared() {
    static Shared of_suite;
    return of_suite;
  }
};

}  // namespace moepack

// Keeps a device open from a program's first test to its last. Loaders unload a driver with its
// last instance, and NVIDIA's cannot be loaded again any number of times in a process: tests that
// open a device each found none after a few dozen and skipped themselves.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

class DriverStays : public ::testing::Environment {
 public:
  void SetUp() override {
    auto opened = VulkanDevice::open({});
    if (opened.is_ok()) {
      device_ = std::move(opened).value();
    } else {
      reason_ = opened.status().message();
    }
  }
  void TearDown() override { device_.reset(); }
  // Why there is no device; empty: there is one.
  static const std::string& reason() { return reason_; }

 private:
  static inline std::unique_ptr<VulkanDevice> device_;
  static inline std::string reason_;
};

// Owned by the test program.
inline ::testing::Environment* const kDriverStays =
    ::testing::AddGlobalTestEnvironment(new DriverStays());

}  // namespace moepack

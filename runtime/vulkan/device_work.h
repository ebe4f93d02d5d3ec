// What a device has done since its backend was opened, for reports.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace moepack {

struct DeviceWork {
  std::uint64_t batches = 0;
  std::uint64_t submissions = 0;
  std::uint64_t dispatches = 0;
  std::uint64_t barriers = 0;
};

// Of the kernels between two barriers, by their names, as "matvec_q4 x3, matvec_bf16".
struct KernelTime {
  std::uint64_t runs = 0;
  double seconds = 0;
};
using KernelTimes = std::map<std::string, KernelTime>;

struct DeviceReport {
  DeviceWork work;
  KernelTimes kernels;  // while stages were timed
};

}  // namespace moepack

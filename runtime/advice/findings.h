// What facts and rates of a machine mean for running large models, in plain words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/advice/disk_rates.h"
#include "runtime/advice/machine_facts.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

enum class FindingLevel : std::uint8_t {
  kOk,
  kNote,     // it works, and could be better
  kProblem,  // models will be slow, or not run
};
// "OK", "NOTE", "PROBLEM".
std::string_view finding_level_name(FindingLevel level);

struct Finding {
  std::string area;  // "disk", "memory", "processor", "gpu", "limits"
  FindingLevel level = FindingLevel::kOk;
  std::string text;
  std::string remedy = {};  // what to do; empty: nothing
};

// Each function is pure and names every fact that it knows.
// `measured`: nothing where the disk could not be, for the reason `unmeasured`.
std::vector<Finding> disk_findings(const DiskFacts& facts, const std::string& directory,
                                   const std::optional<DiskMeasurement>& measured,
                                   const std::string& unmeasured);
std::vector<Finding> memory_findings(const MemoryFacts& facts);
// `level`: the instruction set that is used; `read_rate`: bytes a second from memory, 0: unknown.
std::vector<Finding> processor_findings(const ProcessorFacts& facts, const std::string& name,
                                        std::string_view level, double read_rate);
std::vector<Finding> gpu_findings(const Result<std::vector<VulkanDeviceInfo>>& devices);
std::vector<Finding> limit_findings(const LimitFacts& facts);

}  // namespace moepack

#include "runtime/advice/findings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace moepack {
namespace {

// Bytes a second below which a disk is a hard disk or a slow network, and below which it holds back
// even a small model.
constexpr double kSlowDisk = 200e6;
constexpr double kModestDisk = 1e9;
// The smallest published model at 4 bits, converted.
constexpr std::uint64_t kUsefulSpace = 20'000'000'000;
// A pack has a file for each layer; some programs' default is 256.
constexpr std::uint64_t kFewDescriptors = 512;

std::string gigabytes(double bytes) {
  std::array<char, 48> text{};
  if (bytes < 1e9) {
    std::snprintf(text.data(), text.size(), "%.0f MB", bytes / 1e6);
  } else {
    std::snprintf(text.data(), text.size(), bytes < 99.5e9 ? "%.1f GB" : "%.0f GB", bytes / 1e9);
  }
  return text.data();
}
std::string gigabytes(std::uint64_t bytes) { return gigabytes(static_cast<double>(bytes)); }
std::string rate(double bytes_per_second) {
  std::array<char, 48> text{};
  if (bytes_per_second < 1e9) {
    std::snprintf(text.data(), text.size(), "%.0f MB/s", bytes_per_second / 1e6);
  } else {
    std::snprintf(text.data(), text.size(), "%.2f GB/s", bytes_per_second / 1e9);
  }
  return text.data();
}

std::string one_digit(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", number);
  return text.data();
}

bool is_network(std::string_view type) {
  constexpr std::array<std::string_view, 7> kTypes{"nfs", "nfs4", "cifs",  "smb3",
                                                   "9p",  "ceph", "lustre"};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end() || type.starts_with("fuse.");
}

Finding place_finding(const DiskFacts& facts, const std::string& directory) {
  Finding finding{.area = "disk", .text = directory + " is on "};
  finding.text += facts.file_system.empty() ? "an unknown file system" : facts.file_system;
  if (!facts.device.empty()) finding.text += " (" + facts.device + ")";
  finding.text += facts.free_bytes.has_value() ? ", " + gigabytes(*facts.free_bytes) + " are free"
                                               : ", free space unknown";
  if (facts.file_system == "tmpfs") {
    finding.level = FindingLevel::kNote;
    finding.remedy = "what lies there takes memory; keep models on a disk";
  } else if (is_network(facts.file_system)) {
    finding.level = FindingLevel::kNote;
    finding.remedy = "it is not a disk of this machine; keep models on a local one";
  } else if (facts.free_bytes.value_or(kUsefulSpace) < kUsefulSpace) {
    finding.level = FindingLevel::kNote;
    finding.remedy = "the smallest of the models below takes " + gigabytes(kUsefulSpace) +
                     " at 4 bits; free some space or name another directory";
  }
  return finding;
}

Finding rate_finding(const DiskMeasurement& measured) {
  Finding finding{.area = "disk",
                  .text = "random reads of 1.77 MB: " + rate(measured.rates.many) +
                          " with 8 at once, " + rate(measured.rates.one) + " one by one"};
  if (measured.sequential > 0) finding.text += "; in sequence " + rate(measured.sequential);
  if (measured.is_temporary) finding.text += " (of a temporary file, removed again)";
  if (!measured.is_direct) {
    finding.level = FindingLevel::kNote;
    finding.text += ", through the page cache";
    finding.remedy = "the file system cannot pass the page cache, the disk may be slower than that";
  }
  if (measured.rates.many < kSlowDisk) {
    finding.level = FindingLevel::kProblem;
    finding.remedy = "models larger than memory will be very slow; use an SSD";
  } else if (measured.rates.many < kModestDisk) {
    finding.level = FindingLevel::kNote;
    finding.remedy = "each GB that memory does not hold costs " +
                     one_digit(1e9 / measured.rates.many) + " s; an NVMe disk reads several GB/s";
  }
  return finding;
}

Finding huge_page_finding(const MemoryFacts& facts) {
  Finding finding{.area = "memory", .text = "huge pages: " + facts.huge_pages};
  if (facts.huge_pages != "never") return finding;
  finding.level = FindingLevel::kNote;
  finding.remedy =
      "new memory is cleared in half the time with them: "
      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  return finding;
}

Finding device_finding(const VulkanDeviceInfo& device) {
  Finding finding{.area = "gpu",
                  .text = device.name + ", " + std::string(vulkan_device_type_name(device.type)) +
                          ", " + gigabytes(device.memory_bytes) +
                          (device.is_unified ? " shared with the processor, " : ", ") +
                          device.driver};
  if (!device.lacks.empty()) {
    finding.level = FindingLevel::kNote;
    finding.remedy = "it cannot be used, it lacks " + device.lacks + "; a newer driver may help";
  } else if (device.type == VulkanDeviceType::kCpu) {
    finding.remedy = "it is the processor playing a GPU, good for tests alone";
  }
  return finding;
}

}  // namespace

std::string_view finding_level_name(FindingLevel level) {
  switch (level) {
    case FindingLevel::kOk:
      return "OK";
    case FindingLevel::kNote:
      return "NOTE";
    default:
      return "PROBLEM";
  }
}

std::vector<Finding> disk_findings(const DiskFacts& facts, const std::string& directory,
                                   const std::optional<DiskMeasurement>& measured,
                                   const std::string& unmeasured) {
  std::vector<Finding> findings{place_finding(facts, directory)};
  if (measured.has_value()) {
    findings.push_back(rate_finding(*measured));
  } else {
    findings.push_back({.area = "disk",
                        .level = FindingLevel::kNote,
                        .text = "its rate is unknown: " + unmeasured});
  }
  return findings;
}

std::vector<Finding> memory_findings(const MemoryFacts& facts) {
  std::vector<Finding> findings;
  Finding size{.area = "memory", .text = gigabytes(facts.total_bytes) + " in all"};
  if (facts.available_bytes.has_value()) {
    size.text += ", " + gigabytes(*facts.available_bytes) + " may be used now";
    if (*facts.available_bytes < facts.total_bytes / 2) {
      size.level = FindingLevel::kNote;
      size.remedy =
          "memory is what keeps experts from the disk; end other programs, or raise the "
          "limit around this one";
    }
  }
  findings.push_back(size);
  if (facts.group_limit_bytes.has_value() && *facts.group_limit_bytes < facts.total_bytes) {
    findings.push_back(
        {.area = "memory",
         .level = FindingLevel::kNote,
         .text = "a control group limits it to " + gigabytes(*facts.group_limit_bytes),
         .remedy = "it is kept to; more is given by the container's own setting "
                   "(docker -m, systemd MemoryMax, Kubernetes limits)"});
  }
  findings.push_back(
      {.area = "memory",
       .text = facts.swap_bytes == 0
                   ? "no swap: what does not fit is refused instead of becoming slow"
                   : gigabytes(facts.swap_bytes) + " of swap, which plans do not count on"});
  if (!facts.huge_pages.empty()) findings.push_back(huge_page_finding(facts));
  findings.push_back({.area = "memory",
                      .text = facts.locked_limit_bytes.has_value()
                                  ? "at most " + gigabytes(*facts.locked_limit_bytes) +
                                        " may be locked (ulimit -l); nothing here needs more"
                                  : "any amount may be locked (ulimit -l)"});
  return findings;
}

std::vector<Finding> processor_findings(const ProcessorFacts& facts, const std::string& name,
                                        std::string_view level, double read_rate) {
  std::vector<Finding> findings;
  Finding chip{.area = "processor",
               .text = (name.empty() ? "of unknown name" : name) + ", " +
                       std::to_string(facts.processors) +
                       (facts.processors == 1 ? " processor" : " processors") +
                       ", kernels: " + std::string(level)};
  if (level == "scalar") {
    chip.level = FindingLevel::kProblem;
    chip.remedy = "it has neither AVX2 nor NEON with dot products, and computes very slowly";
  }
  findings.push_back(chip);
  if (read_rate > 0) {
    findings.push_back({.area = "processor", .text = "reads memory at " + rate(read_rate)});
  }
  if (facts.quota.has_value() && *facts.quota < facts.processors) {
    const auto threads = std::max(1L, std::lround(std::floor(*facts.quota)));
    findings.push_back({.area = "processor",
                        .level = FindingLevel::kNote,
                        .text = "a control group gives " + one_digit(*facts.quota) + " of " +
                                std::to_string(facts.processors) + " processors' time",
                        .remedy = "give -t " + std::to_string(threads) +
                                  ": more threads are stopped in the middle of a token"});
  }
  return findings;
}

std::vector<Finding> gpu_findings(const Result<std::vector<VulkanDeviceInfo>>& devices) {
  std::vector<Finding> findings;
  if (devices.is_ok()) {
    for (const VulkanDeviceInfo& device : devices.value()) {
      findings.push_back(device_finding(device));
    }
  }
  if (!findings.empty()) return findings;
  return {{.area = "gpu",
           .level = FindingLevel::kNote,
           .text = "none that Vulkan shows" +
                   (devices.is_ok() ? std::string() : ": " + devices.status().message()),
           .remedy = "models run on the processor; with a GPU, install its Vulkan driver"}};
}

std::vector<Finding> limit_findings(const LimitFacts& facts) {
  std::vector<Finding> findings;
  if (facts.has_uring) {
    findings.push_back({.area = "limits", .text = "io_uring may be used"});
  } else {
    findings.push_back({.area = "limits",
                        .level = FindingLevel::kNote,
                        .text = "io_uring may not be used: " + facts.uring_lacks,
                        .remedy = "threads read instead; containers allow it with another seccomp "
                                  "profile"});
  }
  Finding files{.area = "limits",
                .text = std::to_string(facts.descriptors) + " files may be open (ulimit -n)"};
  if (facts.descriptors < kFewDescriptors) {
    files.level = FindingLevel::kNote;
    files.remedy = "a model has one for each layer; ulimit -n 1024 is enough for all of them";
  }
  findings.push_back(files);
  return findings;
}

}  // namespace moepack

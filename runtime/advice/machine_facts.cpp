#include "runtime/advice/machine_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "runtime/model/available_memory.h"
#include "runtime/store/uring_reader.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// Limits above this are how version 1 of control groups writes that there is none.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::uint64_t kibibytes_of(const fs::path& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    std::uint64_t value = 0;
    if (rest >> value) return value * 1024;
  }
  return 0;
}

// The word in brackets of "always [madvise] never".
std::string chosen_word(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  const std::size_t from = line.find('[');
  const std::size_t to = line.find(']');
  if (from == std::string::npos || to == std::string::npos || to < from) return "";
  return line.substr(from + 1, to - from - 1);
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Calls visit(directory, is_version_2) for the group of this process that has the controller, and
// for its ancestors, those that can be seen.
template <typename Visit>
void for_each_group(const fs::path& root, std::string_view controller, const Visit& visit) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_version_2 = controllers.empty();
    if (!is_version_2 && !has_controller(controllers, controller)) continue;
    fs::path group = root / "sys/fs/cgroup";
    if (!is_version_2) {
      std::error_code error;
      group /= fs::exists(group / controllers, error) ? controllers : std::string(controller);
    }
    visit(group, is_version_2);
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      if (part == "..") break;
      group /= part;
      visit(group, is_version_2);
    }
  }
}

template <typename Number>
std::optional<Number> read_number(const fs::path& file) {
  std::ifstream in(file);
  Number value{};
  if (!(in >> value)) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> group_memory_limit(const fs::path& root) {
  std::optional<std::uint64_t> least;
  for_each_group(root, "memory", [&](const fs::path& group, bool is_version_2) {
    const auto limit =
        read_number<std::uint64_t>(group / (is_version_2 ? "memory.max" : "memory.limit_in_bytes"));
    if (limit.has_value() && *limit < kNoLimit) least = std::min(least.value_or(*limit), *limit);
  });
  return least;
}

// Processors' worth of time, "max 100000" or two files.
std::optional<double> quota_of(const fs::path& group, bool is_version_2) {
  double quota = 0;
  double period = 0;
  if (is_version_2) {
    std::ifstream in(group / "cpu.max");
    if (!(in >> quota >> period)) return std::nullopt;
  } else {
    quota = read_number<double>(group / "cpu.cfs_quota_us").value_or(0);
    period = read_number<double>(group / "cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

MemoryFacts memory_facts(const fs::path& root) {
  MemoryFacts facts;
  facts.total_bytes = kibibytes_of(root / "proc/meminfo", "MemTotal:");
  facts.swap_bytes = kibibytes_of(root / "proc/meminfo", "SwapTotal:");
  facts.available_bytes = available_memory_bytes(root);
  facts.group_limit_bytes = group_memory_limit(root);
  facts.huge_pages = chosen_word(root / "sys/kernel/mm/transparent_hugepage/enabled");
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.locked_limit_bytes = limit.rlim_cur;
  }
  return facts;
}

ProcessorFacts processor_facts(const fs::path& root) {
  ProcessorFacts facts;
  facts.processors = std::max(1U, std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    facts.processors = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  }
#endif
  for_each_group(root, "cpu", [&](const fs::path& group, bool is_version_2) {
    const auto quota = quota_of(group, is_version_2);
    if (quota.has_value()) facts.quota = std::min(facts.quota.value_or(*quota), *quota);
  });
  return facts;
}

LimitFacts limit_facts() {
  LimitFacts facts;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.descriptors = limit.rlim_cur;
  const Status uring = UringReader::check_available();
  facts.has_uring = uring.is_ok();
  if (!facts.has_uring) facts.uring_lacks = uring.message();
  return facts;
}

DiskFacts disk_facts(const fs::path& directory, const fs::path& root) {
  DiskFacts facts;
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (!error) facts.free_bytes = space.available;
  fs::path place = fs::canonical(directory, error);
  if (error) return facts;
  // Lines "id parent major:minor root MOUNT options … - TYPE DEVICE …"; the longest mount that is
  // a beginning of the path holds it, the last line of equal ones.
  std::size_t longest = 0;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line);
    std::istringstream back(line.substr(dash + 3));
    std::string skipped;
    std::string mount;
    std::string type;
    std::string device;
    if (!(front >> skipped >> skipped >> skipped >> skipped >> mount)) continue;
    if (!(back >> type >> device)) continue;
    const std::string prefix = mount == "/" ? mount : mount + "/";
    if ((place.string() + "/").compare(0, prefix.size(), prefix) != 0) continue;
    if (prefix.size() < longest) continue;
    longest = prefix.size();
    facts.file_system = type;
    facts.device = device;
  }
  return facts;
}

}  // namespace moepack

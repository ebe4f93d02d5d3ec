#include "runtime/model/available_memory.h"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace moepack {
namespace {

namespace fs = std::filesystem;
using Bytes = std::optional<std::uint64_t>;

// How one version of control groups names its files.
struct GroupFiles {
  fs::path mount;  // below the root
  std::vector<const char*> limits;
  const char* usage;
  // Lines of memory.stat: what the kernel drops when memory is short, of the group and all below
  // it. Version 1 does not tell its part of the kernel's own caches.
  std::vector<std::string_view> droppable;
};

Bytes least(Bytes a, Bytes b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  return std::min(*a, *b);
}

// The number a file consists of; nullopt when there is none, as in "max".
Bytes read_number(const fs::path& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// The number behind `name` in a file of lines "name number …".
std::uint64_t read_field(const fs::path& path, std::string_view name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.size() <= name.size() || line.compare(0, name.size(), name) != 0) continue;
    if (line[name.size()] != ' ') continue;
    return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  }
  return 0;
}

Bytes left_in_group(const fs::path& group, const GroupFiles& files) {
  Bytes limit;
  for (const char* name : files.limits) limit = least(limit, read_number(group / name));
  const Bytes usage = read_number(group / files.usage);
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  std::uint64_t droppable = 0;
  for (const std::string_view name : files.droppable) {
    droppable += read_field(group / "memory.stat", name);
  }
  const std::uint64_t used = *usage > droppable ? *usage - droppable : 0;
  return *limit > used ? *limit - used : 0;
}

// Of the group at `path` and of its ancestors up to the mount. Directories that are not there, as
// when a container shows only its own part of the tree, limit nothing; of a path that leads out of
// what the mount shows ("/../…"), only the mount itself is known.
Bytes left_in_groups(const fs::path& root, const GroupFiles& files, const fs::path& path) {
  fs::path group = root / files.mount;
  Bytes left = left_in_group(group, files);
  for (const fs::path& part : path.relative_path()) {
    if (part == "..") break;
    group /= part;
    left = least(left, left_in_group(group, files));
  }
  return left;
}

bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "memory") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// Lines "number:controllers:path"; version 2 has number 0 and no controllers.
Bytes left_in_control_groups(const fs::path& root) {
  const GroupFiles version1{"sys/fs/cgroup/memory",
                            {"memory.limit_in_bytes"},
                            "memory.usage_in_bytes",
                            {"total_inactive_file", "total_active_file"}};
  const GroupFiles version2{"sys/fs/cgroup",
                            {"memory.max", "memory.high"},
                            "memory.current",
                            {"inactive_file", "active_file", "slab_reclaimable"}};
  Bytes left;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) left = least(left, left_in_groups(root, version2, path));
    if (names_memory(controllers)) left = least(left, left_in_groups(root, version1, path));
  }
  return left;
}

Bytes left_in_machine(const fs::path& root) {
  constexpr std::uint64_t kKib = 1024;
  const std::uint64_t available = read_field(root / "proc/meminfo", "MemAvailable:") * kKib;
  if (available != 0) return available;
#ifdef _SC_AVPHYS_PAGES
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (root == "/" && pages > 0 && page > 0) {
    return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
#endif
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> available_memory_bytes(const std::filesystem::path& root) {
  return least(left_in_machine(root), left_in_control_groups(root));
}

}  // namespace moepack

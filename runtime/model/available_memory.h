// How much memory the machine, and the control groups around this process, can still give.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace moepack {

// The least of: MemAvailable of proc/meminfo; and for the control group of this process
// (proc/self/cgroup) and each of its ancestors, limit minus use plus the cached files that the
// kernel would drop, in version 2 (memory.max, memory.high, memory.current) and version 1
// (memory.limit_in_bytes, memory.usage_in_bytes). 0: nothing is left; nullopt: it cannot be told.
// All files are looked for below `root`. From any thread.
//
// memory.high is a limit like memory.max: above it the kernel does not end a process but takes its
// memory away again and makes it wait, and a run that lives there is slower than one with a smaller
// cache. Swap is not counted, neither the machine's nor a group's: all that a run holds is read for
// every token, but for expert records, and those come back faster from the pack than from swap.
std::optional<std::uint64_t> available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace moepack

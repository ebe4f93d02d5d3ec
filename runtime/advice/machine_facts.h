// What the system says of the machine and of the limits around this process. Nothing is measured
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace moepack {

struct MemoryFacts {
  std::uint64_t total_bytes = 0;                 // of the machine
  std::optional<std::uint64_t> available_bytes;  // available_memory.h
  std::uint64_t swap_bytes = 0;
  // The least limit of the control groups around this process; nullopt: none.
  std::optional<std::uint64_t> group_limit_bytes;
  std::string huge_pages;                           // "always", "madvise", "never"; "": not told
  std::optional<std::uint64_t> locked_limit_bytes;  // ulimit -l; nullopt: unlimited
};
struct ProcessorFacts {
  std::uint32_t processors = 0;  // that this process may run on
  std::optional<double> quota;   // processors' worth of time that its groups give it
};
struct LimitFacts {
  std::uint64_t descriptors = 0;  // most open files of this process
  bool has_uring = false;         // io_uring can be set up
  std::string uring_lacks;        // why not: the system's own words
};
struct DiskFacts {
  std::string file_system;                  // "ext4", "overlay"; "": not told
  std::string device;                       // as the mount names it
  std::optional<std::uint64_t> free_bytes;  // for this user
};

// Files of the system are looked for below `root`. What cannot be told stays as it is. From any
// thread.
MemoryFacts memory_facts(const std::filesystem::path& root = "/");
ProcessorFacts processor_facts(const std::filesystem::path& root = "/");
LimitFacts limit_facts();
// Of the file system that holds `directory`.
DiskFacts disk_facts(const std::filesystem::path& directory,
                     const std::filesystem::path& root = "/");

}  // namespace moepack

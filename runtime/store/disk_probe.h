// How fast a disk gives random places of a file: the limit of everything that reads experts.
#pragma once

#include <cstdint>
#include <filesystem>

#include "formats/base/status.h"

namespace moepack {

struct DiskProbe {
  std::uint64_t request_bytes = 1769472;  // of one read, as large as an expert's record
  std::uint32_t depth = 8;                // reads under way at once
  bool direct = true;                     // past the page cache, where the file system can
  double milliseconds = 300;              // wall time, at least one read of each thread
  std::uint64_t seed = 1;                 // of the places
};

struct DiskRate {
  double bytes_per_second = 0;
  std::uint64_t bytes = 0;  // read in the measurement
  double seconds = 0;
  // Whether the page cache was passed by. The cache of a host below a virtual machine can serve
  // direct reads too; nobody inside can see that.
  bool is_direct = false;
  // Share of the reads that found their first page in the page cache although it had been asked to
  // forget it: above 0 the rate is not the disk's alone. 0 with direct reads.
  double cached_share = 0;
};

// Reads `file` at random multiples of 4096 with `depth` threads. Buffered reads ask the system
// first to forget the place. A file system that cannot read directly is read through the cache
// (is_direct says so). A file shorter than a request is read whole by each. kInvalidArgument for an
// empty file, kIo for what cannot be read or when there is no thread or memory.
Result<DiskRate> measure_disk_rate(const std::filesystem::path& file, const DiskProbe& probe);

}  // namespace moepack

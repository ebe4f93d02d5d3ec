// How fast a disk gives records: of a file that is there, or of one made for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "formats/base/status.h"
#include "runtime/advice/speed_prediction.h"

namespace moepack {

struct DiskRequest {
  std::uint64_t record_bytes = 1769472;
  std::uint32_t depth = 8;    // reads at once, as a token uses experts of a layer
  double milliseconds = 300;  // of reading one by one; three times as long with many at once
};
struct DiskMeasurement {
  ReadRates rates;
  double sequential = 0;       // measure_sequential(), where it was wanted
  std::filesystem::path file;  // that was read; of a temporary one its directory
  bool is_temporary = false;
  bool is_direct = false;   // past the page cache
  double cached_share = 0;  // of the reads, where they were not (disk_probe.h)
};

// The largest regular file of the directory and its subdirectories' first level, when it has at
// least kProbeFileBytes; else empty. What cannot be listed is passed over.
std::filesystem::path largest_file(const std::filesystem::path& directory);
constexpr std::uint64_t kProbeFileBytes = std::uint64_t{64} << 20;

// Reads random places of `file`. The errors of measure_disk_rate().
Result<DiskMeasurement> measure_file(const std::filesystem::path& file, const DiskRequest& request);
// Bytes a second of reading `file` from front to back, past the page cache where that can be, in
// pieces of 8 MiB. kIo when it cannot be read.
Result<double> measure_sequential(const std::filesystem::path& file, double milliseconds);
// The same of largest_file(), or else of a file of kProbeFileBytes that is written to the
// directory, without a name, so that nothing is ever left of it. kIo when it cannot be written.
// `wants_sequential`: fills DiskMeasurement::sequential too.
Result<DiskMeasurement> measure_directory(const std::filesystem::path& directory,
                                          const DiskRequest& request,
                                          bool wants_sequential = false);

}  // namespace moepack

// Where a replay takes its passes from: a file, or a generator.
#pragma once

#include <filesystem>
#include <memory>

#include "formats/base/status.h"
#include "formats/calibration/routing_trace.h"

namespace moepack {

// Used by one thread.
class TraceSource {
 public:
  virtual ~TraceSource() = default;

  virtual const TraceModel& model() const = 0;
  // The next pass, valid until the next call; null at the end.
  virtual Result<const TracePass*> next() = 0;
  // Begins anew, with the same passes.
  virtual Status rewind() = 0;
  // Bytes at the end that could not be read, because the run was killed. Known after the end.
  virtual std::uint64_t cut_bytes() const { return 0; }
};

// The errors of TraceReader.
Result<std::unique_ptr<TraceSource>> open_trace(const std::filesystem::path& path);

}  // namespace moepack

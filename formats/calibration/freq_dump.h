// Frequency dumps in the logs of the flash-moe engines (`infer --freq`): one line a layer,
//
//   FREQ_DUMP layer=3: 0:15 1:3 250:42
//
// with the experts that were used by ascending id and how often; "layer=3:" alone when there were
// none. A log may hold several dumps, which add up, and any other lines, which are passed over.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "formats/calibration/expert_counts.h"

namespace moepack {

// Takes a log piece by piece and holds no more of it than one line of a dump (4 MiB at most). Used
// by one thread.
class FreqDumpReader {
 public:
  // `file` names the log in errors and outlives the object.
  explicit FreqDumpReader(const std::string& file) : file_(file) {}

  // kCorrupt with the byte offset for a line that begins as one of a dump and does not go on so.
  Status feed(std::span<const char> piece);
  // Ends the log. kCorrupt: its last line is one of a dump and is cut off.
  Status finish();

  std::uint64_t lines() const { return lines_; }  // of dumps
  const ExpertCounts& counts() const { return counts_; }
  // How many lines each layer has. The engines dump all layers at once: where the numbers differ,
  // or a layer has none, the log is incomplete.
  const std::map<std::uint32_t, std::uint64_t>& lines_of_layers() const { return layer_lines_; }

 private:
  Status end_line();
  Status error(std::uint64_t at_in_line, std::string_view what) const;

  const std::string& file_;
  ExpertCounts counts_;
  std::map<std::uint32_t, std::uint64_t> layer_lines_;
  std::string line_;            // what has been read of a line that may be one of a dump
  std::uint64_t line_at_ = 0;   // offset of its start
  std::uint64_t position_ = 0;  // offset of the next byte
  std::uint64_t lines_ = 0;
  bool skips_ = false;  // the rest of this line
};

}  // namespace moepack

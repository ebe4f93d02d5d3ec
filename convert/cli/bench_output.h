// The tables of `bench`, with llama-bench's names and some more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/cli/row_output.h"
#include "convert/cli/timing_output.h"
#include "runtime/engine.h"
#include "runtime/speed/speed_runner.h"

namespace moepack::cli {

// What was measured, and where.
struct BenchSubject {
  std::string model;  // as it was given
  std::string processor;
  std::uint32_t threads = 0;
  std::uint32_t chunk_tokens = 0;
  double read_rate = 0;  // of memory during the test, bytes a second
  // Of the disk at requests of an expert's size, measured before the test; nullopt where the cache
  // has room for every expert.
  std::optional<double> disk_rate;
  bool has_timing = false;
  std::string cache;  // behind a test's name, where several caches are measured
  const Engine* engine = nullptr;
};

// Prints results on stdout; Markdown, CSV and JSON lines as they come.
class BenchOutput {
 public:
  explicit BenchOutput(BenchFormat format) : format_(format), rows_(format) {}
  void add(const BenchSubject& subject, const SpeedResult& result);
  // Prints what has to stand at the end.
  void finish();

 private:
  BenchFormat format_;
  RowOutput rows_;                // of everything but Markdown
  std::vector<TimedPart> parts_;  // of Markdown with --timing
  bool has_head_ = false;
};

}  // namespace moepack::cli

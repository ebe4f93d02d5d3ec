// Shows the progress of long jobs on stderr: on a terminal as one line that is rewritten, with rate
// and time left; elsewhere as one line per layer, and one where all is done.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "convert/job/options.h"
#include "formats/base/elapsed.h"

namespace moepack::cli {

// To the start of a terminal's line, which is empty then.
constexpr const char* kEraseLine = "\r\x1b[K";

// What a line on stderr begins with that another thread's live line may stand before: kEraseLine on
// a terminal, else nothing.
const char* line_start();

// "1.2 GB", "640 kB": decimal units, as everywhere in reports.
std::string format_bytes(std::uint64_t bytes);
// "280000 tokens".
std::string format_tokens(std::uint64_t tokens);
// "45s", "3m20s", "2h05m".
std::string format_duration(double seconds);
// True when stderr is a terminal.
bool stderr_is_terminal();
bool stdout_is_terminal();

class ProgressLine {
 public:
  // `quiet`: nothing is ever printed.
  ProgressLine(bool terminal, bool quiet);
  ~ProgressLine();  // ends the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Thread-safe. A terminal's line is rewritten at most ten times a second.
  void update(std::uint64_t bytes_done, std::uint64_t bytes_total, std::uint32_t layers_done,
              std::uint32_t layers_total);
  // A callback for the jobs of the library, which updates this line. The line outlives it.
  ProgressCallback callback();
  // update() for jobs that count tokens, each once in every layer. `stage` is a word for what is
  // done with the layers, and outlives the line.
  void update_tokens(std::uint64_t tokens_done, std::uint64_t tokens_total,
                     std::uint32_t layers_done, std::uint32_t layers_total,
                     std::string_view stage = "layer");
  // Removes a terminal's line, so that other text can follow.
  void clear();

 private:
  // Writes an amount with its unit, "1.2 GB".
  using Format = std::string (*)(std::uint64_t);
  struct Layers {
    std::string_view stage;
    std::uint32_t done;
    std::uint32_t total;
  };

  // Whether to print a line where nothing can be rewritten. Called with the lock held.
  bool is_worth_a_line(std::uint64_t done, std::uint64_t total, const Layers& layers) const;
  void update_amount(Format format, std::uint64_t done, std::uint64_t total, const Layers& layers);

  bool terminal_;
  bool quiet_;
  Clock::time_point start_;
  Clock::time_point last_;
  bool begun_ = false;
  std::uint64_t at_start_ = 0;  // done when the first update came: an earlier run's
  std::uint32_t layers_shown_ = 0;
  std::string_view stage_shown_ = "layer";
  std::uint64_t done_shown_ = 0;
  bool drawn_ = false;
  std::mutex mutex_;
};

}  // namespace moepack::cli

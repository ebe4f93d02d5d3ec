// What a model does just now, as one line on a terminal that is rewritten four times a second:
// tokens a second, hits of the expert cache, and what the disk gives.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "formats/base/elapsed.h"
#include "runtime/engine.h"

namespace moepack::cli {

// What the line is made of: a reading of the engine's counters.
struct LiveReading {
  ExpertStoreStats experts;
  Clock::time_point when;
};

// "decoding  11.2 tokens/s  hits 71 %  1.24 GB/s of 1.41 (88 %)": of what happened between two
// readings. `uses_per_token`: experts that a token uses, over all layers; 0: tokens are not told.
// `disk_rate`: bytes a second; 0: unknown.
std::string live_text(std::string_view phase, const LiveReading& before, const LiveReading& now,
                      double uses_per_token, double disk_rate);

// Shows the line until it is destroyed, from a thread of its own. Nothing is shown where `is_shown`
// is false, on a device of its own, or where no thread can be had.
class LiveLine {
 public:
  // The engine and the text of `phase` outlive it; that of set_phase() too.
  LiveLine(const Engine& engine, std::string_view phase, bool is_shown, double disk_rate = 0);
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // The rates begin anew. With `counts_tokens` every token uses as many experts as the model says:
  // it is computed alone, and not as part of a prompt.
  void set_phase(std::string_view phase, bool counts_tokens);
  // Removes the line for good, so that other text can follow.
  void stop();

 private:
  LiveReading read() const;
  void show_until_stopped();

  const Engine& engine_;
  double uses_per_token_;
  double disk_rate_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string_view phase_;
  bool counts_tokens_ = false;
  bool stopping_ = false;
  bool drawn_ = false;
  LiveReading last_;
  std::optional<std::thread> thread_;
};

}  // namespace moepack::cli

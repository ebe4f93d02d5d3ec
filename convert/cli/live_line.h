// What a model does just now, as one line on a terminal that is rewritten four times a second:
// tokens a second, hits of the expert cache, and what the disk gives.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "formats/base/elapsed.h"
#include "runtime/engine.h"

namespace moepack::cli {

// What the line is made of: a reading of counters.
struct LiveReading {
  ExpertStoreStats experts;
  Clock::time_point when;
  std::optional<std::uint64_t> tokens = {};  // generated so far; nullopt: told from the experts
  std::string phase = {};                    // what is done, in the place of the line's own
  bool is_idle = false;                      // there is nothing to show
};
// Called from the line's thread.
using LiveSource = std::function<LiveReading()>;

// "decoding  11.2 tokens/s  hits 71 %  1.24 GB/s of 1.41 (88 %)": of what happened between two
// readings. `token_uses`: uses_per_token(), for readings without tokens; 0: tokens are not told.
// `disk_rate`: bytes a second; 0: unknown.
std::string live_text(std::string_view phase, const LiveReading& before, const LiveReading& now,
                      double token_uses, double disk_rate);

// Shows the line until it is destroyed, from a thread of its own. Nothing is shown where `is_shown`
// is false, on a device of its own, or where no thread can be had.
class LiveLine {
 public:
  // The engine and the text of `phase` outlive it; that of set_phase() too.
  LiveLine(const Engine& engine, std::string_view phase, bool is_shown, double disk_rate = 0);
  // What `source` reads outlives the line.
  LiveLine(LiveSource source, std::string_view phase, bool is_shown, double disk_rate);
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // The rates begin anew. With `counts_tokens` every token uses as many experts as the model says:
  // it is computed alone, and not as part of a prompt.
  void set_phase(std::string_view phase, bool counts_tokens);
  // Removes the line for good, so that other text can follow.
  void stop();

 private:
  void begin(bool is_shown);
  void show_until_stopped();
  void show(const LiveReading& now);
  void erase();

  LiveSource read_;
  double token_uses_ = 0;
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

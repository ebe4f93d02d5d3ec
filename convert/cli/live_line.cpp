#include "convert/cli/live_line.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <system_error>

namespace moepack::cli {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
constexpr std::chrono::milliseconds kPause{250};

double uses_of_token(const Engine& engine) {
  const ModelConfig& config = engine.config();
  return double{1} * config.num_layers * config.experts_per_token;
}

}  // namespace

std::string live_text(std::string_view phase, const LiveReading& before, const LiveReading& now,
                      double uses_per_token, double disk_rate) {
  const double seconds =
      std::max(1e-9, std::chrono::duration<double>(now.when - before.when).count());
  const auto hits = static_cast<double>(now.experts.hits - before.experts.hits);
  const double uses = hits + static_cast<double>(now.experts.misses - before.experts.misses);
  const double rate =
      static_cast<double>(now.experts.bytes_read - before.experts.bytes_read) / seconds;
  std::ostringstream out;
  out << phase << std::fixed;
  if (uses_per_token > 0) {
    out << "  " << std::setprecision(1) << uses / uses_per_token / seconds << " tokens/s";
  }
  if (uses > 0) out << "  hits " << std::setprecision(0) << 100 * hits / uses << " %";
  out << "  " << std::setprecision(2) << rate / 1e9 << " GB/s";
  if (disk_rate > 0) {
    out << " of " << disk_rate / 1e9 << " (" << std::setprecision(0) << 100 * rate / disk_rate
        << " %)";
  }
  return out.str();
}

LiveLine::LiveLine(const Engine& engine, std::string_view phase, bool is_shown, double disk_rate)
    : engine_(engine),
      uses_per_token_(uses_of_token(engine)),
      disk_rate_(disk_rate),
      phase_(phase),
      last_(read()) {
  if (!is_shown || engine.device_use().has_value()) return;
  try {
    thread_.emplace([this] { show_until_stopped(); });
  } catch (const std::system_error&) {  // it goes without
  }
}

LiveLine::~LiveLine() { stop(); }

LiveReading LiveLine::read() const { return {engine_.expert_stats(), Clock::now()}; }

void LiveLine::set_phase(std::string_view phase, bool counts_tokens) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  counts_tokens_ = counts_tokens;
  last_ = read();
}

void LiveLine::stop() {
  if (!thread_.has_value()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_->join();
  thread_.reset();
  if (drawn_) std::cerr << kEraseLine << std::flush;
  drawn_ = false;
}

void LiveLine::show_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPause, [this] { return stopping_; })) {
    const LiveReading now = read();
    // Counters that began anew between two readings tell nothing.
    if (now.experts.hits >= last_.experts.hits &&
        now.experts.bytes_read >= last_.experts.bytes_read) {
      std::cerr << kEraseLine
                << live_text(phase_, last_, now, counts_tokens_ ? uses_per_token_ : 0, disk_rate_)
                << std::flush;
      drawn_ = true;
    }
    last_ = now;
  }
}

}  // namespace moepack::cli

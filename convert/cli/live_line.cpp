#include "convert/cli/live_line.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <system_error>
#include <utility>

#include "convert/cli/progress.h"
#include "formats/config/layer_spec.h"
#include "runtime/store/cache_policy.h"

namespace moepack::cli {
namespace {

constexpr std::chrono::milliseconds kPause{250};

double uses_of_token(const ModelConfig& config) {
  const auto layers = std::count_if(config.layers.begin(), config.layers.end(), has_experts);
  return uses_per_token(static_cast<std::uint32_t>(layers), config.experts_per_token);
}

}  // namespace

std::string live_text(std::string_view phase, const LiveReading& before, const LiveReading& now,
                      double token_uses, double disk_rate) {
  const double seconds =
      std::max(1e-9, std::chrono::duration<double>(now.when - before.when).count());
  const auto hits = static_cast<double>(now.experts.hits - before.experts.hits);
  const double uses = hits + static_cast<double>(now.experts.misses - before.experts.misses);
  const double rate =
      static_cast<double>(now.experts.bytes_read - before.experts.bytes_read) / seconds;
  std::ostringstream out;
  out << phase << std::fixed;
  const double tokens = now.tokens.has_value()
                            ? static_cast<double>(*now.tokens - before.tokens.value_or(*now.tokens))
                        : token_uses > 0 ? uses / token_uses
                                         : 0;
  if (tokens > 0 || token_uses > 0) {
    out << "  " << std::setprecision(1) << tokens / seconds << " tokens/s";
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
    : read_([&engine] {
        return LiveReading{engine.expert_stats(), Clock::now()};
      }),
      token_uses_(uses_of_token(engine.config())),
      disk_rate_(disk_rate),
      phase_(phase),
      last_(read_()) {
  begin(is_shown && !engine.device_use().has_value());
}

LiveLine::LiveLine(LiveSource source, std::string_view phase, bool is_shown, double disk_rate)
    : read_(std::move(source)), disk_rate_(disk_rate), phase_(phase), last_(read_()) {
  begin(is_shown);
}

void LiveLine::begin(bool is_shown) {
  if (!is_shown) return;
  try {
    thread_.emplace([this] { show_until_stopped(); });
  } catch (const std::system_error&) {  // it goes without
  }
}

LiveLine::~LiveLine() { stop(); }

void LiveLine::set_phase(std::string_view phase, bool counts_tokens) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  counts_tokens_ = counts_tokens;
  last_ = read_();
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
  erase();
}

void LiveLine::erase() {
  if (drawn_) std::cerr << kEraseLine << std::flush;
  drawn_ = false;
}

void LiveLine::show(const LiveReading& now) {
  // Counters that began anew between two readings tell nothing.
  if (now.experts.hits < last_.experts.hits || now.experts.bytes_read < last_.experts.bytes_read) {
    return;
  }
  const std::string_view phase = now.phase.empty() ? phase_ : now.phase;
  // One write: lines of other threads do not come between.
  std::cerr << kEraseLine +
                   live_text(phase, last_, now, counts_tokens_ ? token_uses_ : 0, disk_rate_)
            << std::flush;
  drawn_ = true;
}

void LiveLine::show_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPause, [this] { return stopping_; })) {
    LiveReading now = read_();
    if (now.is_idle) {
      erase();
    } else {
      show(now);
    }
    last_ = std::move(now);
  }
}

}  // namespace moepack::cli

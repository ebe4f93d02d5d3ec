#include "convert/cli/progress.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace moepack::cli {

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  const int digits = unit == 0 ? 0 : (value < 9.995 ? 2 : (value < 99.95 ? 1 : 0));
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, kUnits[unit]);
  return text.data();
}

std::string format_duration(double seconds) {
  const auto total = static_cast<unsigned long long>(std::llround(seconds));
  std::array<char, 48> text{};
  if (total < 60) {
    std::snprintf(text.data(), text.size(), "%llus", total);
  } else if (total < 3600) {
    std::snprintf(text.data(), text.size(), "%llum%02llus", total / 60, total % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lluh%02llum", total / 3600, total / 60 % 60);
  }
  return text.data();
}

std::string format_tokens(std::uint64_t tokens) { return std::to_string(tokens) + " tokens"; }

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
const char* line_start() { return stderr_is_terminal() ? kEraseLine : ""; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

ProgressLine::ProgressLine(bool terminal, bool quiet)
    : terminal_(terminal), quiet_(quiet), start_(Clock::now()) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::clear() {
  const std::lock_guard lock(mutex_);
  if (drawn_) std::cerr << kEraseLine << std::flush;
  drawn_ = false;
}

void ProgressLine::update(std::uint64_t bytes_done, std::uint64_t bytes_total,
                          std::uint32_t layers_done, std::uint32_t layers_total) {
  update_amount(format_bytes, bytes_done, bytes_total, {"layer", layers_done, layers_total});
}

ProgressCallback ProgressLine::callback() {
  return [this](const ConvertProgress& p) {
    update(p.bytes_done, p.bytes_total, p.layers_done, p.layers_total);
  };
}

void ProgressLine::update_tokens(std::uint64_t tokens_done, std::uint64_t tokens_total,
                                 std::uint32_t layers_done, std::uint32_t layers_total,
                                 std::string_view stage) {
  {
    const std::lock_guard lock(mutex_);
    if (!begun_) at_start_ = tokens_done;
    begun_ = true;
  }
  update_amount(format_tokens, tokens_done, tokens_total, {stage, layers_done, layers_total});
}

bool ProgressLine::is_worth_a_line(std::uint64_t done, std::uint64_t total,
                                   const Layers& layers) const {
  if (layers.done != layers_shown_ || layers.stage != stage_shown_) return true;
  return done >= total && done_shown_ < total;
}

void ProgressLine::update_amount(Format format, std::uint64_t done, std::uint64_t total,
                                 const Layers& layers) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  const bool shown = terminal_ ? now - last_ >= std::chrono::milliseconds(100)
                               : is_worth_a_line(done, total, layers);
  if (!shown) return;
  last_ = now;
  layers_shown_ = layers.done;
  stage_shown_ = layers.stage;
  done_shown_ = done;
  const double seconds = seconds_since(start_);
  const std::uint64_t own = done - std::min(done, at_start_);
  const double rate = seconds > 0 ? static_cast<double>(own) / seconds : 0;
  std::string text = std::string(layers.stage) + " " + std::to_string(layers.done) + "/" +
                     std::to_string(layers.total) + ", " + format(done) + " of " + format(total);
  if (rate > 0 && done < total) {  // a total is an estimate, which a report may exceed
    text += ", " + format(static_cast<std::uint64_t>(rate)) + "/s, " +
            format_duration(static_cast<double>(total - done) / rate) + " left";
  }
  if (terminal_) {
    std::cerr << kEraseLine << text << std::flush;
    drawn_ = true;
  } else {
    std::cerr << text << "\n";
  }
}

}  // namespace moepack::cli

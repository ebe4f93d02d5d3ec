// Time that jobs take, for their reports.
#pragma once

#include <chrono>
#include <cstdint>

namespace moepack {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// 0 where no time has passed.
inline double per_second(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace moepack

// What was submitted, and one choice of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/schedule/scheduler.h"

namespace moepack {

// What was submitted at once: a prompt and its choices.
struct TextGroup {
  TextJob job;
  std::vector<std::shared_ptr<TextListener>> listeners;  // of each choice
  std::atomic<bool> is_cancelled{false};
  std::size_t told_before = SIZE_MAX;  // the scheduler's: what on_queued said last
};

// One choice of a group, waiting or running.
struct TextPlace {
  std::shared_ptr<TextGroup> group;
  std::uint32_t choice = 0;
  // Whether other choices come out of this one's prompt.
  bool has_others = false;

  const TextJob& job() const { return group->job; }
  TextListener& listener() const { return *group->listeners[choice]; }
};

}  // namespace moepack

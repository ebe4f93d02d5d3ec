#include "runtime/store/timeline.h"

namespace moepack {

Timeline::Timeline(std::size_t most_events) { events_.reserve(most_events); }

void Timeline::add(const TimelineEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  if (events_.size() == events_.capacity()) {
    ++dropped_;
    return;
  }
  events_.push_back(event);
}

}  // namespace moepack

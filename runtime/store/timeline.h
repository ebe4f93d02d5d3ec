// What happened when: stages of a forward pass on one track, reads of experts on another. It is
// what a picture of one token is drawn from (bench --timeline), so that one sees whether reading
// and computing overlap.
//
// Thread rule: add() from any thread at any time; the rest while nobody adds. It takes no memory
// after it was made: what finds no room is counted and left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "formats/base/elapsed.h"

namespace moepack {

enum class TimelineTrack : std::uint8_t {
  kBatch,  // a batch of tokens through all layers
  kStage,  // what the forward pass does; its stages follow one another without a gap
  kRead,   // an expert's record, from its submission until its bytes were there
};

struct TimelineEvent {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  TimelineTrack track = TimelineTrack::kStage;
  std::string_view name;         // of static storage
  std::uint32_t layer = kNone;   // of stages within a layer, and of reads
  std::uint32_t expert = kNone;  // of reads
  std::uint64_t amount = 0;      // bytes of a read, tokens of a batch
  Clock::time_point start = {};
  Clock::time_point end = {};
};

class Timeline {
 public:
  // Room for so many events.
  explicit Timeline(std::size_t most_events);

  void add(const TimelineEvent& event) noexcept;

  // In the order in which they were added: by their ends on each track.
  std::span<const TimelineEvent> events() const { return events_; }
  std::uint64_t dropped() const { return dropped_; }
  // When it is full.
  std::uint64_t memory_bytes() const { return events_.capacity() * sizeof(TimelineEvent); }

 private:
  std::mutex mutex_;
  std::vector<TimelineEvent> events_;  // its capacity is the room
  std::uint64_t dropped_ = 0;
};

}  // namespace moepack

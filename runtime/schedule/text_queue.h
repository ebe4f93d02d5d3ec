// Who waits, and how many may: a queue that any thread adds to and the scheduler's thread takes
// from.
//
// What was taken in counts without a gap until its end is told, first as waiting and then, seated,
// as running. So a text is refused exactly when `limit` others wait behind full seats, however the
// threads interleave.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "runtime/schedule/text_place.h"

namespace moepack {

class TextQueue;

// A seat of one that runs, given back when it is dropped. The queue outlives it.
class TextSeat {
 public:
  TextSeat() = default;
  TextSeat(TextSeat&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
  TextSeat& operator=(TextSeat&& other) noexcept {
    if (this != &other) {
      give_back();
      queue_ = std::exchange(other.queue_, nullptr);
    }
    return *this;
  }
  ~TextSeat() { give_back(); }

  void give_back();

 private:
  friend class TextQueue;
  explicit TextSeat(TextQueue& queue) : queue_(&queue) {}

  TextQueue* queue_ = nullptr;  // null: none
};

class TextQueue {
 public:
  using Iterator = std::deque<TextPlace>::iterator;

  // `seats`: texts that run at once.
  TextQueue(std::size_t limit, std::size_t seats) : limit_(limit), seats_(seats) {}
  TextQueue(const TextQueue&) = delete;
  TextQueue& operator=(const TextQueue&) = delete;

  // Any thread.

  // False when it is full or closed.
  bool offer(TextPlace place);
  // Nothing more is taken in.
  void close();
  bool is_closed() const;
  std::size_t waiting() const;  // those offered included

  // The scheduler's thread alone. What was offered is in the order after take_offered().

  void take_offered();
  Iterator begin() { return order_.begin(); }
  Iterator end() { return order_.end(); }
  // It waits no more. Returns the one behind it.
  Iterator remove(Iterator place);
  // It waits no more, and runs until the seat is dropped.
  Iterator seat(Iterator place, TextSeat& seat);
  // Of one that has not waited.
  TextSeat seat();
  // Before all others, whether there is room or not.
  void push_front(TextPlace place);

 private:
  friend class TextSeat;
  void leave();

  const std::size_t limit_, seats_;
  mutable std::mutex mutex_;
  std::deque<TextPlace> offered_;  // under mutex_, as all to is_closed_
  std::size_t waiting_ = 0;
  std::size_t running_ = 0;
  bool is_closed_ = false;
  std::deque<TextPlace> order_;  // the scheduler's
};

}  // namespace moepack

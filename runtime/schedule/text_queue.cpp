#include "runtime/schedule/text_queue.h"

#include <algorithm>

namespace moepack {

void TextSeat::give_back() {
  if (TextQueue* const queue = std::exchange(queue_, nullptr)) queue->leave();
}

bool TextQueue::offer(TextPlace place) {
  const std::lock_guard lock(mutex_);
  const std::size_t free_seats = seats_ - std::min(running_, seats_);
  if (is_closed_ || waiting_ >= limit_ + free_seats) return false;
  offered_.push_back(std::move(place));
  ++waiting_;
  return true;
}

void TextQueue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

bool TextQueue::is_closed() const {
  const std::lock_guard lock(mutex_);
  return is_closed_;
}

std::size_t TextQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

void TextQueue::take_offered() {
  const std::lock_guard lock(mutex_);
  while (!offered_.empty()) {
    order_.push_back(std::move(offered_.front()));
    offered_.pop_front();
  }
}

TextQueue::Iterator TextQueue::remove(Iterator place) {
  const Iterator next = order_.erase(place);
  const std::lock_guard lock(mutex_);
  --waiting_;
  return next;
}

TextQueue::Iterator TextQueue::seat(Iterator place, TextSeat& seat) {
  const Iterator next = order_.erase(place);
  {
    const std::lock_guard lock(mutex_);
    --waiting_;
    ++running_;
  }
  seat = TextSeat(*this);
  return next;
}

TextSeat TextQueue::seat() {
  const std::lock_guard lock(mutex_);
  ++running_;
  return TextSeat(*this);
}

void TextQueue::push_front(TextPlace place) {
  order_.push_front(std::move(place));
  const std::lock_guard lock(mutex_);
  ++waiting_;
}

void TextQueue::leave() {
  const std::lock_guard lock(mutex_);
  --running_;
}

}  // namespace moepack

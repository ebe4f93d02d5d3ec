// Counts what the converting threads have done and tells the caller.
#pragma once

#include <mutex>

#include "convert/job/options.h"

namespace moepack {

// Thread-safe.
class ProgressCounter {
 public:
  // `start`: what is done and what there is to do.
  ProgressCounter(const ConvertProgress& start, ProgressCallback callback)
      : state_(start), callback_(std::move(callback)) {}

  void add_bytes(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    state_.bytes_done += bytes;
    if (callback_) callback_(state_);
  }
  void layer_done() {
    const std::lock_guard lock(mutex_);
    ++state_.layers_done;
    if (callback_) callback_(state_);
  }

 private:
  std::mutex mutex_;
  ConvertProgress state_;
  ProgressCallback callback_;
};

}  // namespace moepack

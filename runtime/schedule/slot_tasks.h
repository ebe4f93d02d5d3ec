// Work on kept texts that other threads ask for: the scheduler's thread does it as soon as the slot
// is idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <span>
#include <utility>

#include "formats/base/status.h"
#include "runtime/schedule/kept_text.h"

namespace moepack {

class SlotTasks {
 public:
  using Work = std::function<Result<std::uint64_t>(KeptText&)>;
  // Of work that no slot has to be idle for; it gets an empty text.
  static constexpr std::size_t kNoSlot = ~std::size_t{0};

  // Any thread.

  // Waits for the work to be done; `wake` calls the scheduler to it. kInvalidArgument when the
  // scheduler ends. A work that throws leaves the slot empty.
  Result<std::uint64_t> run(std::size_t slot, Work work, const std::function<void()>& wake);
  bool has_any() const;
  // Takes nothing more.
  void close();

  // The scheduler's thread. Those whose slots are idle; `before_told` is called before each of them
  // is told.
  void do_ready(std::span<KeptText> slots, const std::function<void()>& before_told);
  // Those that are left are told that the scheduler ends.
  void fail_all();

 private:
  struct Task {
    std::size_t slot = 0;
    Work work;
    std::promise<Result<std::uint64_t>> done;
  };
  std::deque<Task> take_ready(std::span<const KeptText> slots);

  mutable std::mutex mutex_;
  std::deque<Task> tasks_;  // under mutex_, as is_closed_
  bool is_closed_ = false;
};

}  // namespace moepack

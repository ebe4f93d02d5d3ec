#include "runtime/schedule/slot_tasks.h"

#include "runtime/schedule/caught.h"

namespace moepack {
namespace {

Status scheduler_ends() { return invalid_argument("the scheduler ends", "start the server again"); }

}  // namespace

Result<std::uint64_t> SlotTasks::run(std::size_t slot, Work work,
                                     const std::function<void()>& wake) {
  Task task{.slot = slot, .work = std::move(work), .done = {}};
  std::future<Result<std::uint64_t>> done = task.done.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return scheduler_ends();
    tasks_.push_back(std::move(task));
  }
  wake();
  return done.get();
}

bool SlotTasks::has_any() const {
  const std::lock_guard lock(mutex_);
  return !tasks_.empty();
}

void SlotTasks::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

std::deque<SlotTasks::Task> SlotTasks::take_ready(std::span<const KeptText> slots) {
  std::deque<Task> ready;
  const std::lock_guard lock(mutex_);
  for (auto task = tasks_.begin(); task != tasks_.end();) {
    if (task->slot != kNoSlot && slots[task->slot].is_busy) {
      ++task;
      continue;
    }
    ready.push_back(std::move(*task));
    task = tasks_.erase(task);
  }
  return ready;
}

void SlotTasks::do_ready(std::span<KeptText> slots, const std::function<void()>& before_told) {
  for (Task& task : take_ready(slots)) {
    KeptText none;
    KeptText& kept = task.slot == kNoSlot ? none : slots[task.slot];
    Result<std::uint64_t> done = std::uint64_t{0};
    const Status thrown = caught([&] { done = task.work(kept); });
    if (!thrown.is_ok()) {
      done = thrown;
      kept.clear();  // it may be half-changed
    }
    before_told();
    task.done.set_value(std::move(done));
  }
}

void SlotTasks::fail_all() {
  const std::lock_guard lock(mutex_);
  for (Task& task : tasks_) task.done.set_value(scheduler_ends());
  tasks_.clear();
}

}  // namespace moepack

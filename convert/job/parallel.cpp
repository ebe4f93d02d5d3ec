#include "convert/job/parallel.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace moepack {

std::size_t thread_count(unsigned threads) {
  return threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
}

std::size_t bounded_thread_count(unsigned threads) {
  constexpr std::size_t kMost = 32;
  return std::min(thread_count(threads), kMost);
}

Status parallel_items(std::size_t count, std::size_t threads,
                      const std::function<Status(std::size_t item, std::size_t worker)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed_item = std::numeric_limits<std::size_t>::max();
  Status failure;
  const auto run = [&](std::size_t worker) {
    for (;;) {
      const std::size_t item = next.fetch_add(1);
      if (item >= count) return;
      Status status;
      try {
        status = work(item, worker);
      } catch (const std::bad_alloc&) {
        status = make_error(StatusCode::kIo, {}, "out of memory", "use fewer threads (-t)");
      }
      if (status.is_ok()) continue;
      next.store(count);
      const std::lock_guard lock(mutex);
      if (item < failed_item) {
        failed_item = item;
        failure = std::move(status);
      }
      return;
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t worker = 1; worker < std::min(threads, count); ++worker) {
    try {
      others.emplace_back(run, worker);
    } catch (const std::system_error&) {
      break;  // as many as the system gives; every item is still done
    }
  }
  run(0);
  others.clear();
  return failure;
}

}  // namespace moepack

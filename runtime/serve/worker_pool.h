// Threads that do what the thread of the server must not be held up by.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moepack {

// Work is begun in the order in which it was posted, from any thread. Exceptions of work are
// dropped with it.
class WorkerPool {
 public:
  explicit WorkerPool(std::size_t threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  // Does what is posted, and waits for it.
  ~WorkerPool();

  void post(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // under mutex_
  bool ends_ = false;                       // under mutex_
  std::vector<std::thread> threads_;
};

}  // namespace moepack

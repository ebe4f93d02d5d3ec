// A fixed set of threads that share index ranges. One pool per engine; parallel_for is called from
// one thread at a time and never nested.
//
// A call costs a store, an atomic step for each range and one for each thread that got any; no lock
// and no memory. Threads without work look for the next call for a tenth of a millisecond, then
// they sleep until there is one.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/model/function_ref.h"

namespace moepack {

class ThreadPool {
 public:
  using Body = FunctionRef<void(std::size_t begin, std::size_t end, std::size_t worker)>;

  // `threads` >= 1 counts the calling thread. 1: everything runs in the caller.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const;

  // Calls body(begin, end, worker) for consecutive ranges of at most `grain` indices that cover
  // [0, count), each exactly once, in any order and on any thread; worker < size() names the
  // thread, for scratch of its own. Returns when all are done, without waiting for threads that had
  // no part in it. body must not throw.
  void parallel_for(std::size_t count, std::size_t grain, Body body);

  // The range that the thread of range `index` probably takes behind it, which may lie behind the
  // last: threads take them in turn. For asking memory in time, nothing more.
  std::size_t probably_behind(std::size_t index) const { return index + size(); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack

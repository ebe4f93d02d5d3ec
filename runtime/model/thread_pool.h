// A fixed set of threads that share index ranges. One pool per engine; parallel_for is called from
// one thread at a time and never nested.
//
// Each thread has a share of a call's ranges, consecutive ones, so that what it reads is as well;
// when it is done with them it takes what others have left of theirs. A call costs two stores for
// each thread, an atomic step for each range, of which no two threads' meet while they are at their
// own shares, a look of each thread at all shares, and a step of each that got any range; no lock
// and no memory. Threads without work look for the next call for a tenth of a millisecond, then
// they sleep until there is one.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/model/equal_parts.h"
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

  // The ranges of a call with `ranges` of them that are the share of `worker`. For asking memory in
  // time, nothing more: others may take some of them, and it may take some of others'.
  Part share_of(std::size_t ranges, std::size_t worker) const {
    return equal_part(ranges, size(), worker);
  }
  // The end of that, of the call whose body `worker` is in.
  std::size_t share_end(std::size_t worker) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack

// Single indices shared among the threads of a pool.
#pragma once

#include <cstddef>

#include "runtime/model/function_ref.h"
#include "runtime/model/thread_pool.h"

namespace moepack {

// Calls body(i) for every i < count, each once, in any order and on any thread of `pool`; returns
// when all are done. For indices that are work enough each. body must not throw.
inline void for_each_index(ThreadPool& pool, std::size_t count,
                           FunctionRef<void(std::size_t)> body) {
  pool.parallel_for(count, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace moepack

// Work items on several threads, with errors as values.
#pragma once

#include <cstddef>
#include <functional>

#include "formats/base/status.h"

namespace moepack {

// One per processor when `threads` is 0.
std::size_t thread_count(unsigned threads);
// The same, but at most 32: for workers that hold a few mebibytes each, so that memory stays
// bounded whatever is asked for.
std::size_t bounded_thread_count(unsigned threads);

// Calls work(item, worker) once for every item < count, worker < threads, from `threads` threads
// (the calling one among them), items handed out in order. After an error no further item is
// started; of several errors that of the lowest item is returned. `work` must not throw anything
// but std::bad_alloc, which becomes kIo.
Status parallel_items(std::size_t count, std::size_t threads,
                      const std::function<Status(std::size_t item, std::size_t worker)>& work);

}  // namespace moepack

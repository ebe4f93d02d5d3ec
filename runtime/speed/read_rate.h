// How fast threads can read memory: the limit of everything that reads its weights once.
#pragma once

#include <cstddef>
#include <memory>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "runtime/model/thread_pool.h"

namespace moepack {

// Threads with a buffer of four times the last-level cache and at least 256 MiB (where memory is
// short, a quarter of what there is). Other work on the machine lowers what it measures. One thread
// at a time.
class ReadRateMeter {
 public:
  // threads >= 1. kIo when there is no memory for the buffer.
  static Result<std::unique_ptr<ReadRateMeter>> create(std::size_t threads);

  // Bytes a second, the best of at least five passes over the buffer in at least `seconds`.
  double measure(double seconds);

 private:
  ReadRateMeter(std::size_t threads, AlignedBuffer buffer);

  ThreadPool pool_;
  AlignedBuffer buffer_;
};

// Once, in about a third of a second.
Result<double> measure_read_rate(std::size_t threads);

}  // namespace moepack

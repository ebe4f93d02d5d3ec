// Says so when somebody has waited long for a disk: a network disk that is gone or a drive that
// wakes up look like a program that hangs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "formats/base/status.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"

namespace moepack {

// Hands everything on to another reader. A thread of its own looks now and then whether a reap()
// has waited for longer than `patience`; it tells `notice` so, again each time the wait has become
// twice as long, and once more when bytes come again.
class StallWatch final : public RecordReader {
 public:
  // `source`: gives what is waited for, for the line; it is called from the watching thread, while
  // the reader lives. kIo when the system gives no thread.
  static Result<std::unique_ptr<StallWatch>> open(
      std::unique_ptr<RecordReader> reader, std::function<std::string()> source, StoreNotice notice,
      std::chrono::milliseconds patience = std::chrono::seconds(5));
  ~StallWatch() override;
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  Status submit(std::span<const RecordRead> reads) override;
  std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept override;

 private:
  struct Impl;
  explicit StallWatch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack

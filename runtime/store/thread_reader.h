// Reads records on a few threads of its own, which take their checksums too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "formats/base/status.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"

namespace moepack {

// Starts a thread that runs the function; throws std::system_error as std::thread does.
using ThreadStarter = std::function<std::thread(std::function<void()>)>;

class ThreadReader final : public RecordReader {
 public:
  // Opens the files in this way (not kAuto), which RecordRead::file counts from 0, and starts
  // `threads` threads (at least one). Errors of RecordFile::open; kIo when the system does not give
  // all threads. `start`: for tests; empty: std::thread.
  static Result<std::unique_ptr<ThreadReader>> open(const std::vector<std::filesystem::path>& files,
                                                    std::uint32_t threads,
                                                    IoMode mode = IoMode::kBuffered,
                                                    const ThreadStarter& start = {});
  ~ThreadReader() override;
  ThreadReader(const ThreadReader&) = delete;
  ThreadReader& operator=(const ThreadReader&) = delete;

  Status submit(std::span<const RecordRead> reads) override;
  std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept override;

 private:
  struct Impl;
  explicit ThreadReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack

// Reads records with pread on a few threads of its own, which take their checksums too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "runtime/store/record_reader.h"

namespace moepack {

// Starts a thread that runs the function; throws std::system_error as std::thread does.
using ThreadStarter = std::function<std::thread(std::function<void()>)>;

class ThreadReader final : public RecordReader {
 public:
  // Opens the files, which RecordRead::file counts from 0, and starts `threads` threads (at least
  // one). kIo when the system does not give all of them. `start`: for tests; empty: std::thread.
  static Result<std::unique_ptr<ThreadReader>> open(const std::vector<std::filesystem::path>& files,
                                                    std::uint32_t threads,
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

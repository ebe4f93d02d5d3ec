// Reads records through Linux's io_uring: one system call starts all reads of a submission, and the
// kernel works on many at once. Built where liburing is there; elsewhere open() says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"

namespace moepack {

struct UringOptions {
  std::uint32_t depth = 32;   // reads that the kernel has at once; the others wait for their turn
  std::uint32_t threads = 2;  // that take completions and checksums
  IoMode mode = IoMode::kDirect;  // or kBuffered
};

class UringReader final : public RecordReader {
 public:
  // Ok when this program, kernel and container have io_uring with what is needed (Linux
  // 5.11); kUnsupported with the reason otherwise.
  static Status check_available();

  // Opens the files, which RecordRead::file counts from 0, and a ring. kUnsupported as of
  // check_available(), errors of RecordFile::open, kIo when the system gives no threads.
  static Result<std::unique_ptr<UringReader>> open(const std::vector<std::filesystem::path>& files,
                                                   const UringOptions& options);
  // Cancels what the kernel can cancel and waits for the rest.
  ~UringReader() override;
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  Status submit(std::span<const RecordRead> reads) override;
  std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept override;

 private:
  struct Impl;
  explicit UringReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack

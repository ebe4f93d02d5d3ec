// Files of routing traces (routing_trace.h): written while a run goes on, read pass by pass.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "formats/base/elapsed.h"
#include "formats/base/file.h"
#include "formats/calibration/routing_trace.h"

namespace moepack {

// Used by one thread. The file has its name from the beginning, unlike other results: what a killed
// run has recorded is worth reading.
class TraceWriter {
 public:
  // Replaces a regular file of this name, links followed; anything else is refused. kIo where it
  // cannot be written.
  static Result<std::unique_ptr<TraceWriter>> create(const std::filesystem::path& path,
                                                     const TraceModel& model);
  // Writes what is left; its error is lost (flush() gives it).
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Writes a block when it is long enough, or a second after the last one.
  Status add(const TracePass& pass);
  Status flush();

 private:
  TraceWriter(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  Status write(std::span<const std::byte> bytes);

  int fd_;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  TraceBlock block_;
  Clock::time_point written_ = Clock::now();
};

// Used by one thread.
class TraceReader {
 public:
  // The errors of parse_trace_head.
  static Result<TraceReader> open(const std::filesystem::path& path);

  const TraceModel& model() const { return model_; }
  // The next pass, valid until the next call; null at the end. kCorrupt with the offset of a block
  // that is damaged; one that the file ends in is not read, and cut_bytes() tells.
  Result<const TracePass*> next();
  // Of a block at the end that is not whole: the run was killed. Known when next() has given null.
  std::uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  TraceReader(File file, TraceModel model, std::uint64_t offset)
      : file_(std::move(file)), model_(std::move(model)), offset_(offset) {}
  Result<bool> read_block();

  File file_;
  TraceModel model_;
  std::uint64_t offset_;
  std::uint64_t cut_bytes_ = 0;
  std::vector<TracePass> passes_;  // of the block
  std::size_t given_ = 0;
};

}  // namespace moepack

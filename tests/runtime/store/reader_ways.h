// Every way of reading that this machine has, for tests that all of them must pass.
#pragma once

#include <gtest/gtest.h>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/thread_reader.h"
#include "runtime/store/uring_reader.h"

namespace moepack::test {

struct ReaderWay {
  IoEngine engine = IoEngine::kThreads;
  IoMode mode = IoMode::kBuffered;

  bool can_be_had() const {
    return engine == IoEngine::kThreads || UringReader::check_available().is_ok();
  }
  Result<std::unique_ptr<RecordReader>> open(const std::vector<std::filesystem::path>& files,
                                             std::uint32_t width = 4) const {
    std::unique_ptr<RecordReader> reader;
    if (engine == IoEngine::kUring) {
      MOE_ASSIGN_OR_RETURN(reader,
                           UringReader::open(files, {.depth = width, .threads = 2, .mode = mode}));
    } else {
      MOE_ASSIGN_OR_RETURN(reader, ThreadReader::open(files, width, mode));
    }
    return reader;
  }
  std::string name() const {
    return std::string(io_engine_name(engine)) + "_" + std::string(io_mode_name(mode));
  }
};

inline std::vector<ReaderWay> reader_ways() {
  return {{IoEngine::kThreads, IoMode::kBuffered},
          {IoEngine::kThreads, IoMode::kDirect},
          {IoEngine::kThreads, IoMode::kMmap},
          {IoEngine::kUring, IoMode::kBuffered},
          {IoEngine::kUring, IoMode::kDirect}};
}

inline std::ostream& operator<<(std::ostream& out, const ReaderWay& way) {
  return out << way.name();
}

// Memory as the cache gives it: aligned, and whole units long.
struct RecordBuffer {
  explicit RecordBuffer(std::size_t bytes)
      : buffer(AlignedBuffer::allocate(align_up(bytes, kDirectUnit), kDirectUnit).value()),
        bytes_(buffer.span().first(bytes)) {}
  std::span<std::byte> span() { return bytes_; }

  AlignedBuffer buffer;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace moepack::test

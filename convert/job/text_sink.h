// Collects text and hands it on in large pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "convert/job/byte_sink.h"
#include "formats/base/status.h"

namespace moepack {

class TextSink {
 public:
  // `sink` outlives it.
  explicit TextSink(const ByteSink& sink) : sink_(sink) {}

  Status add(std::string_view text) {
    buffer_ += text;
    return buffer_.size() < kFlushBytes ? Status::ok() : flush();
  }
  // Hands on what is left; call at the end.
  Status flush() {
    MOE_RETURN_IF_ERROR(sink_(std::as_bytes(std::span(buffer_))));
    bytes_ += buffer_.size();
    buffer_.clear();
    return Status::ok();
  }
  std::uint64_t bytes() const { return bytes_; }  // handed on

 private:
  static constexpr std::size_t kFlushBytes = std::size_t{1} << 18;
  const ByteSink& sink_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;
};

}  // namespace moepack

// zstd frames one after another, as streams with bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

// Bytes of a frame's contents; no frame needs a larger window to be read.
constexpr std::size_t kZstdFrameBytes = std::size_t{1} << 20;

// Compresses blocks of at most kZstdFrameBytes to one frame each.
class ZstdFrameEncoder {
 public:
  explicit ZstdFrameEncoder(int level);
  ~ZstdFrameEncoder();
  ZstdFrameEncoder(const ZstdFrameEncoder&) = delete;
  ZstdFrameEncoder& operator=(const ZstdFrameEncoder&) = delete;

  // The frame; valid until the next call.
  Result<std::span<const std::byte>> encode(std::span<const std::byte> block);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The contents of a file of frames from front to back. Never more memory than two blocks.
class ZstdFrameReader {
 public:
  // `file` outlives the object.
  explicit ZstdFrameReader(const File& file);
  ~ZstdFrameReader();
  ZstdFrameReader(const ZstdFrameReader&) = delete;
  ZstdFrameReader& operator=(const ZstdFrameReader&) = delete;

  // Fills `out`; kCorrupt with the offset when the file ends before, or is no zstd data or needs a
  // larger window.
  Status read(std::span<std::byte> out);
  // kCorrupt unless the last frame is complete and nothing follows.
  Status finish();

 private:
  // One call of the decoder; `progress`: whether it took or gave anything.
  Status step(std::span<std::byte> out, std::size_t& produced);
  Status error(std::string_view what) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack

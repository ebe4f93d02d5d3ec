// Bytes of files brought into memory by several threads, with one checksum over all of them in
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/file.h"
#include "formats/base/status.h"

namespace moepack {

// Bytes [offset, offset + size) of a file.
struct ReadPiece {
  const File* file = nullptr;  // outlives the read
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::byte* out = nullptr;  // where they go; nullptr: they are in the checksum alone
};

struct OrderedReadOptions {
  std::size_t threads = 1;  // the calling one included; at most kMostReadThreads are used
  bool wants_checksum = true;
};

// One core cannot copy out of the system's cache as fast as memory takes it, a few can.
constexpr std::size_t kMostReadThreads = 8;
// Memory that pieces without a place take while they are read, all threads together.
constexpr std::size_t kPassedBytes = std::size_t{1} << 20;

// Reads all pieces and gives the checksum of their bytes, one piece after another (0 unless
// wanted). Each thread reads a block and sums it up when its turn comes, while it is still in the
// processor's cache. The error is that of the first block, in order, that cannot be read; what has
// been read by then is undefined. Threads that cannot be started are done without.
Result<std::uint64_t> read_in_order(std::span<const ReadPiece> pieces,
                                    const OrderedReadOptions& options);

}  // namespace moepack

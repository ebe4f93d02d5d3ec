// How records come from the disk into memory: reads are submitted many at a time, one submission
// for what a layer misses, and their completions are reaped in the order in which they come.
//
// What a thread that waits for an expert would have to do with its bytes, the reader does before it
// announces them: the checksum is taken where the bytes are read, many at once.
//
// Thread rule: one thread at a time may submit, and one at a time may reap; the two may be at work
// at once. ExpertStore sees to both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/elapsed.h"
#include "formats/base/status.h"

namespace moepack {

struct RecordRead {
  std::uint64_t tag = 0;     // the caller's name for this read; it stands in the completion
  std::uint32_t file = 0;    // index among the files that the reader was opened with
  std::uint64_t offset = 0;  // bytes from the start of the file
  // Filled with the file's bytes, and the caller's again when the completion was reaped. It starts
  // at a multiple of kRecordAlignment (record_cache.h), and the memory goes on to the next multiple
  // behind its end: a reader may write there too.
  std::span<std::byte> out = {};
  bool wants_checksum = false;
};

struct RecordCompletion {
  std::uint64_t tag = 0;
  // Names file and offset. A read that the reader cannot finish for whatever reason is completed
  // with an error; none is ever lost.
  Status status = {};
  // How many bytes were read. Fewer than asked for: the file ended. A reader that gets a part goes
  // on with the rest itself.
  std::size_t bytes = 0;
  Clock::time_point finished = {};  // when the bytes were there
  // checksum() of all bytes, where has_checksum: the read got them, and wanted it or may not be
  // trusted without.
  std::uint64_t checksum = 0;
  bool has_checksum = false;
  // Somebody has written to the file since it was opened.
  bool is_changed = false;
};

class RecordReader {
 public:
  // Returns when no read is under way any more; those not yet begun are dropped.
  virtual ~RecordReader() = default;

  // Starts all of `reads` without waiting for any. After an error none was started, nor after
  // std::bad_alloc, the only exception.
  virtual Status submit(std::span<const RecordRead> reads) = 0;

  // Moves completions to the front of `out` (at least one long), in the order in which they came,
  // and gives their number; those that find no place there stay for the next call. With `wait`,
  // which needs a read that was submitted and not yet reaped, blocks until there is at least one.
  // Needs no memory: no completion is lost where there is none.
  virtual std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept = 0;
};

}  // namespace moepack

// Reads a pack that lies on several disks: a record comes from the disk that has least to do, and
// from another one where the first cannot give it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "formats/pack/pack_manifest.h"
#include "runtime/store/pack_files.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"

namespace moepack {

// A record is compared with the manifest at its first read from each place, whether its read wants
// a checksum or not: a copy may be another one. What fails (an error, too few bytes, a wrong
// checksum) is read from the next place; the error of the last one stands in the completion. The
// first failure of each file is told to `notice`.
class MirrorReader final : public RecordReader {
 public:
  // `reader` was opened with files.files. RecordRead::file is a layer; offsets are those of the
  // manifest, which has checksums.
  MirrorReader(std::unique_ptr<RecordReader> reader, PackFiles files, const PackManifest& manifest,
               StoreNotice notice);

  Status submit(std::span<const RecordRead> reads) override;
  std::size_t reap(std::span<RecordCompletion> out, bool wait) noexcept override;

  // The directories of which reads are under way, for people; empty where there are none, or a
  // submission is under way. Any thread.
  std::string awaited_places();

 private:
  // A read on its way; the inner reader's tag is its index.
  struct Flight {
    RecordRead read;
    std::uint32_t expert = 0;
    std::size_t choice = 0;  // into of_layer
    std::size_t tried = 0;   // places that have failed
  };

  Result<std::uint32_t> expert_at(std::uint32_t layer, std::uint64_t offset) const;
  std::uint32_t file_of(const Flight& flight) const;
  std::size_t least_busy(std::uint32_t layer) const;
  RecordRead inner_read(std::size_t index) const;
  std::size_t take_flight();
  void count_in(std::size_t index);
  Status judge(const Flight& flight, RecordCompletion& completion);
  bool try_next(std::size_t index, const Status& failure) noexcept;
  void tell(std::uint32_t failed, const Status& failure) noexcept;
  bool finish(RecordCompletion& completion) noexcept;

  const PackFiles files_;
  const PackManifest manifest_;
  const StoreNotice notice_;
  // [layers] experts in the order of their offsets.
  std::vector<std::vector<std::uint32_t>> by_offset_;

  std::mutex mutex_;  // guards what follows; held over the inner reader's submit()
  std::vector<Flight> flights_;
  std::vector<std::size_t> free_flights_;  // has room for all flights
  std::vector<std::uint64_t> queued_;      // [places] bytes under way
  std::vector<std::uint32_t> failures_;    // [places] reads that failed since the last good one
  std::vector<std::vector<bool>> passed_;  // [files][expert] was compared
  std::vector<bool> is_told_;              // [files]

  // Last, so that no read is under way when the rest goes.
  std::unique_ptr<RecordReader> reader_;
};

}  // namespace moepack

#include "runtime/store/mirror_reader.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "formats/base/checksum.h"

namespace moepack {
namespace {

// Reads that fail in a row, after which a place is read only where no other has the file.
constexpr std::uint32_t kMostFailures = 3;

}  // namespace

MirrorReader::MirrorReader(std::unique_ptr<RecordReader> reader, PackFiles files,
                           const PackManifest& manifest, StoreNotice notice)
    : files_(std::move(files)),
      manifest_(manifest),
      notice_(std::move(notice)),
      queued_(files_.num_places),
      failures_(files_.num_places),
      passed_(files_.files.size(), std::vector<bool>(manifest.num_experts)),
      is_told_(files_.files.size()),
      reader_(std::move(reader)) {
  for (const LayerEntry& layer : manifest_.layers) {
    std::vector<std::uint32_t>& order = by_offset_.emplace_back(layer.experts.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return layer.experts[a].offset < layer.experts[b].offset;
    });
  }
}

Result<std::uint32_t> MirrorReader::expert_at(std::uint32_t layer, std::uint64_t offset) const {
  if (layer >= by_offset_.size()) {
    return invalid_argument("there is no layer file " + std::to_string(layer));
  }
  const std::vector<ExpertEntry>& experts = manifest_.layers[layer].experts;
  const auto found = std::lower_bound(
      by_offset_[layer].begin(), by_offset_[layer].end(), offset,
      [&](std::uint32_t expert, std::uint64_t at) { return experts[expert].offset < at; });
  if (found != by_offset_[layer].end() && experts[*found].offset == offset) return *found;
  return invalid_argument("no record begins at byte " + std::to_string(offset));
}

std::uint32_t MirrorReader::file_of(const Flight& flight) const {
  return files_.of_layer[flight.read.file][flight.choice];
}

std::size_t MirrorReader::least_busy(std::uint32_t layer) const {
  const std::vector<std::uint32_t>& copies = files_.of_layer[layer];
  // A place that fails does so quickly, and would always have least to do.
  const auto load = [&](std::uint32_t file) {
    const std::uint32_t place = files_.places[file];
    return std::pair(failures_[place] >= kMostFailures, queued_[place]);
  };
  const auto least =
      std::min_element(copies.begin(), copies.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return load(a) < load(b); });
  return static_cast<std::size_t>(least - copies.begin());
}

RecordRead MirrorReader::inner_read(std::size_t index) const {
  const Flight& flight = flights_[index];
  RecordRead read = flight.read;
  read.tag = index;
  read.file = file_of(flight);
  read.wants_checksum = read.wants_checksum || !passed_[read.file][flight.expert];
  return read;
}

std::size_t MirrorReader::take_flight() {
  if (free_flights_.empty()) {
    const std::size_t count = flights_.size() + 1;
    if (free_flights_.capacity() < count) free_flights_.reserve(2 * count);
    flights_.emplace_back();
    free_flights_.push_back(count - 1);
  }
  const std::size_t index = free_flights_.back();
  free_flights_.pop_back();
  return index;
}

void MirrorReader::count_in(std::size_t index) {
  queued_[files_.places[file_of(flights_[index])]] += flights_[index].read.out.size();
}

Status MirrorReader::submit(std::span<const RecordRead> reads) {
  std::vector<std::uint32_t> experts;
  for (const RecordRead& read : reads) {
    MOE_ASSIGN_OR_RETURN(const std::uint32_t expert, expert_at(read.file, read.offset));
    experts.push_back(expert);
  }
  std::vector<RecordRead> inner;
  inner.reserve(reads.size());
  const std::lock_guard lock(mutex_);
  const auto take_back = [&] {
    for (const RecordRead& read : inner) {
      const Flight& flight = flights_[read.tag];
      queued_[files_.places[file_of(flight)]] -= flight.read.out.size();
      free_flights_.push_back(read.tag);
    }
  };
  Status status;
  try {
    for (std::size_t i = 0; i < reads.size(); ++i) {
      const std::size_t index = take_flight();
      flights_[index] = {
          .read = reads[i], .expert = experts[i], .choice = least_busy(reads[i].file)};
      count_in(index);
      inner.push_back(inner_read(index));
    }
    status = reader_->submit(inner);
  } catch (const std::bad_alloc&) {
    take_back();
    throw;
  }
  if (!status.is_ok()) take_back();
  return status;
}

// The completion's own error, or what is wrong with its bytes.
Status MirrorReader::judge(const Flight& flight, RecordCompletion& completion) {
  if (!completion.status.is_ok()) return completion.status;
  const std::uint32_t file = file_of(flight);
  const Where where{.file = files_.files[file].native(), .offset = flight.read.offset};
  if (completion.bytes < flight.read.out.size()) {
    return corrupt(where, "only " + std::to_string(completion.bytes) + " bytes could be read",
                   "copy it again");
  }
  if (!completion.has_checksum) return Status::ok();
  const std::uint64_t expected = manifest_.layers[flight.read.file].experts[flight.expert].checksum;
  if (completion.checksum == expected) {
    passed_[file][flight.expert] = true;
    return Status::ok();
  }
  return corrupt(where,
                 "expert " + std::to_string(flight.expert) + " has checksum " +
                     checksum_text(completion.checksum) + ", " + kPackManifestName + " says " +
                     checksum_text(expected),
                 "the file is damaged; copy it again");
}

// Starts the read at the place after the one that failed. False: there is none.
bool MirrorReader::try_next(std::size_t index, const Status& failure) noexcept {
  Flight& flight = flights_[index];
  const std::uint32_t failed = file_of(flight);
  const std::size_t copies = files_.of_layer[flight.read.file].size();
  if (++flight.tried >= copies) return false;
  flight.choice = (flight.choice + 1) % copies;
  try {
    const RecordRead read = inner_read(index);
    if (!reader_->submit(std::span(&read, 1)).is_ok()) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  // The read is under way: whatever comes now, it is not given up.
  count_in(index);
  tell(failed, failure);
  return true;
}

// Once for each file; not at all where there is no memory for the sentence.
void MirrorReader::tell(std::uint32_t failed, const Status& failure) noexcept {
  if (!notice_ || is_told_[failed]) return;
  is_told_[failed] = true;
  try {
    notice_(failure.message() + "; it is read from another --pack-dir");
  } catch (const std::bad_alloc&) {  // it goes without
  }
}

// Gives the completion the caller's tag. False: the read goes on at another place.
bool MirrorReader::finish(RecordCompletion& completion) noexcept {
  const std::size_t index = completion.tag;
  const std::lock_guard lock(mutex_);
  const Flight& flight = flights_[index];
  queued_[files_.places[file_of(flight)]] -= flight.read.out.size();
  Status status(StatusCode::kIo, "a read failed");
  try {
    status = judge(flight, completion);
  } catch (const std::bad_alloc&) {  // for the sentence that says what is wrong
  }
  std::uint32_t& failures = failures_[files_.places[file_of(flight)]];
  failures = status.is_ok() ? 0 : failures + 1;
  if (!status.is_ok() && try_next(index, status)) return false;
  completion.tag = flight.read.tag;
  completion.status = std::move(status);
  free_flights_.push_back(index);
  return true;
}

std::string MirrorReader::awaited_places() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return "";
  std::string text;
  std::vector<bool> is_named(files_.num_places);
  for (std::size_t i = 0; i < files_.files.size(); ++i) {
    const std::uint32_t place = files_.places[i];
    if (queued_[place] == 0 || is_named[place]) continue;
    is_named[place] = true;
    text += (text.empty() ? "" : ", ") + files_.files[i].parent_path().string();
  }
  return text;
}

std::size_t MirrorReader::reap(std::span<RecordCompletion> out, bool wait) noexcept {
  while (true) {
    const std::size_t count = reader_->reap(out, wait);
    std::size_t given = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!finish(out[i])) continue;
      if (given != i) std::swap(out[given], out[i]);
      ++given;
    }
    if (given > 0 || !wait || count == 0) return given;
  }
}

}  // namespace moepack

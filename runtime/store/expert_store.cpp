#include "runtime/store/expert_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "formats/base/elapsed.h"
#include "runtime/store/cache_policy.h"
#include "runtime/store/out_of_memory.h"
#include "runtime/store/pack_files.h"
#include "runtime/store/record_cache.h"
#include "runtime/store/record_check.h"
#include "runtime/store/thread_reader.h"

namespace moepack {
namespace {

using Slot = RecordCache::Slot;
// Of an expert of a batch that has no place in the cache yet, or got none because begin() failed.
constexpr Slot kNoSlot = RecordCache::kNoSlot;
// The part of the budget that what is read ahead for one layer takes at most.
constexpr std::uint64_t kAheadDivisor = 16;
// Completions reaped at once.
constexpr std::size_t kReapedAtOnce = 16;

enum class LoadState : std::uint8_t {
  kLoading,  // to be read, or being read
  kReady,
  kFailed,
};

// How the record of a cache entry came to be there.
struct RecordLoad {
  LoadState state = LoadState::kLoading;
  bool is_checked = false;  // its checksum is to be compared
  bool is_ahead = false;    // read ahead, and not asked for yet
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  Status status = {};         // of kFailed
  std::uint64_t arrival = 0;  // counts the records that became ready or failed
  Clock::time_point submitted = {};
};

// Memory of the largest.
std::uint64_t largest_record(const PackManifest& manifest) {
  return record_memory_bytes(largest_record_bytes(manifest));
}

Status check_budget(const PackManifest& manifest, const ExpertStoreOptions& options) {
  if (manifest.all_experts() == 0) return Status::ok();  // a device's dense layers
  const std::uint64_t largest = largest_record(manifest);
  const std::uint64_t batches = std::max(1U, options.concurrent_batches);
  if (options.cache_bytes / batches >= largest) return Status::ok();
  return invalid_argument(
      "the expert cache of " + std::to_string(options.cache_bytes) +
          " bytes cannot hold one expert of " + std::to_string(largest) + " bytes" +
          (batches > 1 ? " for each of " + std::to_string(batches) + " batches" : std::string()),
      "raise --cache-mb");
}

// How many experts of a layer may be read ahead: an eighth of the budget at most for two layers.
std::size_t most_ahead_of(const PackManifest& manifest, const ExpertStoreOptions& options) {
  const std::uint64_t largest = std::max<std::uint64_t>(1, largest_record(manifest));
  return std::min<std::uint64_t>(options.ahead_experts,
                                 options.cache_bytes / kAheadDivisor / largest);
}

// By layer: how many of its largest records a share of the budget holds.
std::vector<std::size_t> largest_batches(const PackManifest& manifest,
                                         const ExpertStoreOptions& options) {
  const std::uint64_t ahead = 2 * most_ahead_of(manifest, options) * largest_record(manifest);
  std::vector<std::size_t> batches;
  for (const LayerEntry& layer : manifest.layers) {
    std::uint64_t largest = 1;
    for (const ExpertEntry& expert : layer.experts) {
      largest = std::max(largest, manifest.layouts[expert.layout].record_bytes);
    }
    batches.push_back(largest_batch(options.cache_bytes - ahead, options.kept.bytes,
                                    options.concurrent_batches, largest));
  }
  return batches;
}

// "" for layers without experts.
std::vector<std::filesystem::path> layer_paths(const std::filesystem::path& pack_directory,
                                               const PackManifest& manifest) {
  std::vector<std::filesystem::path> paths;
  for (const LayerEntry& layer : manifest.layers) {
    paths.push_back(layer.experts.empty() ? std::filesystem::path() : pack_directory / layer.file);
  }
  return paths;
}

}  // namespace

struct ExpertStore::Impl {
  using Lock = std::unique_lock<std::mutex>;

  Impl(const std::filesystem::path& pack_directory, const PackManifest& pack,
       const ExpertStoreOptions& store_options, std::unique_ptr<RecordReader> record_reader,
       std::unique_ptr<EvictionPolicy> policy)
      : manifest(pack),
        options(store_options),
        files(layer_paths(pack_directory, pack)),
        most_ahead(most_ahead_of(manifest, options)),
        max_batches(largest_batches(manifest, options)),
        cache(store_options.cache_bytes, std::move(policy)),
        check(manifest, files),
        reader(std::move(record_reader)) {}

  Status check_experts(std::uint32_t layer, std::span<const std::uint32_t> experts) const;
  RecordKey key_of(std::uint32_t layer, std::uint32_t expert) const {
    return RecordKey{layer} * manifest.num_experts + expert;
  }

  // All of these need the lock; those that take it let go of it while they wait. Only start_reads()
  // and what it calls need memory.
  Status start_reads(std::uint32_t layer, std::span<const std::uint32_t> experts,
                     std::vector<Slot>& slots, std::vector<RecordRead>& reads);
  Status add_missing(std::uint32_t layer, std::span<const std::uint32_t> experts,
                     std::vector<Slot>& slots, std::vector<RecordRead>& reads);
  Status submit(const std::vector<RecordRead>& reads);
  void count(std::span<const Slot> slots, std::span<const RecordRead> reads, bool is_ahead);
  void settle(Lock& lock, std::span<const Slot> slots);
  void advance(Lock& lock);
  void drain(Lock& lock);
  std::size_t reap(Lock& lock, bool wait);
  void take_completion(RecordCompletion& completion);
  void note_read(const RecordCompletion& completion) const;
  Status judge(RecordCompletion& completion);
  void finish(Slot slot, Status status);
  Status short_read(const RecordLoad& load, std::size_t bytes) const;
  Status changed(const RecordLoad& load) const;

  const PackManifest manifest;
  const ExpertStoreOptions options;
  const std::vector<std::filesystem::path> files;
  const std::size_t most_ahead;
  const std::vector<std::size_t> max_batches;

  mutable std::mutex mutex;  // guards what follows
  // Records became ready, or a thread ceased to reap: what waiting threads look for.
  std::condition_variable progress;
  RecordCache cache;
  RecordCheck check;
  std::vector<RecordLoad> loads;                       // by slot
  std::size_t outstanding = 0;                         // reads submitted and not reaped
  bool reaping = false;                                // a thread is inside reader->reap()
  std::array<RecordCompletion, kReapedAtOnce> reaped;  // that thread's
  std::uint64_t arrivals = 0;
  Clock::time_point busy_since;
  Clock::time_point last_finished;
  ExpertStoreStats stats;

  // Last, so that no read is under way when the memory goes.
  std::unique_ptr<RecordReader> reader;
};

Status ExpertStore::Impl::check_experts(std::uint32_t layer,
                                        std::span<const std::uint32_t> experts) const {
  if (layer >= manifest.num_layers) {
    return invalid_argument("the pack has no layer " + std::to_string(layer));
  }
  for (const std::uint32_t expert : experts) {
    if (expert < manifest.experts_of(layer)) continue;
    return invalid_argument("the pack has no expert " + std::to_string(expert));
  }
  return Status::ok();
}

// Begins to read what is missing. After an error none of it is under way; the batch keeps its pins.
Status ExpertStore::Impl::start_reads(std::uint32_t layer, std::span<const std::uint32_t> experts,
                                      std::vector<Slot>& slots, std::vector<RecordRead>& reads) {
  Status status = or_out_of_memory("the places of a batch of experts", std::nullopt, [&]() {
    MOE_RETURN_IF_ERROR(add_missing(layer, experts, slots, reads));
    return submit(reads);
  });
  if (status.is_ok()) return status;
  // Nobody else has seen these entries: the lock was held.
  for (const RecordRead& read : reads) finish(read.tag, Status(StatusCode::kIo, "not begun"));
  return status;
}

// Gives every expert without a slot one, and a read to those that are not on their way already.
// `reads` has room for all of them: an entry without a read would never be ready.
Status ExpertStore::Impl::add_missing(std::uint32_t layer, std::span<const std::uint32_t> experts,
                                      std::vector<Slot>& slots, std::vector<RecordRead>& reads) {
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (slots[i] != kNoSlot) continue;
    const RecordKey key = key_of(layer, experts[i]);
    if (const auto twin = cache.pin(key); twin.has_value()) {
      slots[i] = *twin;
      continue;
    }
    const std::uint64_t size = manifest.layout_of(layer, experts[i]).record_bytes;
    if (loads.size() <= cache.slots()) loads.resize(cache.slots() + 1);
    MOE_ASSIGN_OR_RETURN(const Slot slot, cache.add(key, size));
    slots[i] = slot;
    const bool is_checked = check.is_due(layer, experts[i]);
    loads[slot] = {.is_checked = is_checked, .layer = layer, .expert = experts[i]};
    reads.push_back({.tag = slot,
                     .file = layer,
                     .offset = manifest.layers[layer].experts[experts[i]].offset,
                     .out = cache.memory(slot),
                     .wants_checksum = is_checked});
  }
  return Status::ok();
}

Status ExpertStore::Impl::submit(const std::vector<RecordRead>& reads) {
  if (reads.empty()) return Status::ok();
  const Clock::time_point start = Clock::now();  // the first read may end before submit() does
  MOE_RETURN_IF_ERROR(reader->submit(reads));
  if (outstanding == 0) busy_since = start;
  outstanding += reads.size();
  for (const RecordRead& read : reads) {
    stats.bytes_read += read.out.size();
    loads[read.tag].submitted = start;
  }
  return Status::ok();
}

// Waits until all of these are ready or failed.
void ExpertStore::Impl::settle(Lock& lock, std::span<const Slot> slots) {
  for (const Slot slot : slots) {
    if (slot == kNoSlot) continue;
    while (loads[slot].state == LoadState::kLoading) advance(lock);
  }
}

// Waits for completions, or for the thread that does. The caller's record is not ready, so its read
// has not been reaped, or another thread is about to enter what it has reaped.
void ExpertStore::Impl::advance(Lock& lock) {
  if (reaping) {
    progress.wait(lock);
  } else {
    reap(lock, true);
  }
}

// Makes everything ready that has come in, without waiting for more.
void ExpertStore::Impl::drain(Lock& lock) {
  while (outstanding > 0 && !reaping) {
    if (reap(lock, false) < reaped.size()) return;
  }
}

std::size_t ExpertStore::Impl::reap(Lock& lock, bool wait) {
  reaping = true;
  lock.unlock();
  const std::size_t count = reader->reap(reaped, wait);
  lock.lock();
  reaping = false;
  for (std::size_t i = 0; i < count; ++i) take_completion(reaped[i]);
  progress.notify_all();
  return count;
}

void ExpertStore::Impl::take_completion(RecordCompletion& completion) {
  if (options.timeline != nullptr) note_read(completion);
  last_finished = std::max(last_finished, completion.finished);
  if (--outstanding == 0) {
    stats.read_seconds += std::chrono::duration<double>(last_finished - busy_since).count();
  }
  finish(completion.tag, or_out_of_memory("the error of an expert", std::nullopt,
                                          [&] { return judge(completion); }));
}

void ExpertStore::Impl::note_read(const RecordCompletion& completion) const {
  const RecordLoad& load = loads[completion.tag];
  options.timeline->add({.track = TimelineTrack::kRead,
                         .name = "read",
                         .layer = load.layer,
                         .expert = load.expert,
                         .amount = completion.bytes,
                         .start = load.submitted,
                         .end = completion.finished});
}

// Whether the record is there as the manifest describes it.
Status ExpertStore::Impl::judge(RecordCompletion& completion) {
  const Slot slot = completion.tag;
  const RecordLoad& load = loads[slot];
  if (!completion.status.is_ok()) return std::move(completion.status);
  if (completion.bytes < cache.memory(slot).size()) return short_read(load, completion.bytes);
  if (completion.is_changed && !manifest.has_checksums) return changed(load);
  if (!load.is_checked && !completion.has_checksum) return Status::ok();
  return check.compare(load.layer, load.expert, completion.checksum);
}

// Of a file whose experts cannot be told from others.
Status ExpertStore::Impl::changed(const RecordLoad& load) const {
  return corrupt(Where{.file = files[load.layer].string()},
                 "has been written to since the model was opened", "start again");
}

Status ExpertStore::Impl::short_read(const RecordLoad& load, std::size_t bytes) const {
  const std::string file = files[load.layer].string();
  return corrupt(
      Where{.file = file, .offset = manifest.layers[load.layer].experts[load.expert].offset},
      "only " + std::to_string(bytes) + " of " +
          std::to_string(manifest.layout_of(load.layer, load.expert).record_bytes) +
          " bytes of expert " + std::to_string(load.expert) + " could be read",
      "it is cut short; copy or convert it again");
}

void ExpertStore::Impl::finish(Slot slot, Status status) {
  RecordLoad& load = loads[slot];
  load.arrival = ++arrivals;
  load.state = status.is_ok() ? LoadState::kReady : LoadState::kFailed;
  load.status = std::move(status);
  // Whoever asks for the expert next reads it again.
  if (load.state == LoadState::kFailed) cache.forget(slot);
}

ExpertStore::ExpertStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExpertStore::~ExpertStore() = default;

Result<std::unique_ptr<ExpertStore>> ExpertStore::open(const std::filesystem::path& pack_directory,
                                                       const PackManifest& manifest,
                                                       const ExpertStoreOptions& options) {
  MOE_RETURN_IF_ERROR(check_budget(manifest, options));
  MOE_ASSIGN_OR_RETURN(
      std::unique_ptr<RecordReader> reader,
      ThreadReader::open(layer_paths(pack_directory, manifest), options.io_threads));
  return open_with(std::move(reader),
                   make_policy(options.policy, options.token_uses, options.kept.keys),
                   pack_directory, manifest, options);
}

Result<std::unique_ptr<ExpertStore>> ExpertStore::open_with(
    std::unique_ptr<RecordReader> reader, std::unique_ptr<EvictionPolicy> policy,
    const std::filesystem::path& pack_directory, const PackManifest& manifest,
    const ExpertStoreOptions& options) {
  MOE_RETURN_IF_ERROR(check_budget(manifest, options));
  auto impl = std::make_unique<Impl>(pack_directory, manifest, options, std::move(reader),
                                     std::move(policy));
  return std::unique_ptr<ExpertStore>(new ExpertStore(std::move(impl)));
}

std::size_t ExpertStore::max_batch(std::uint32_t layer) const { return impl_->max_batches[layer]; }

void ExpertStore::find_resident(std::uint32_t layer, std::span<std::uint8_t> is_resident) const {
  const std::lock_guard lock(impl_->mutex);
  for (std::uint32_t e = 0; e < is_resident.size(); ++e) {
    is_resident[e] = impl_->cache.holds(impl_->key_of(layer, e)) ? 1 : 0;
  }
}

Result<ExpertStore::Batch> ExpertStore::begin(std::uint32_t layer,
                                              std::span<const std::uint32_t> experts) {
  MOE_RETURN_IF_ERROR(impl_->check_experts(layer, experts));
  return or_out_of_memory("a batch of experts", std::nullopt,
                          [&] { return start_batch(layer, experts, false); });
}

Result<ExpertStore::Batch> ExpertStore::begin_ahead(std::uint32_t layer,
                                                    std::span<const std::uint32_t> experts) {
  MOE_RETURN_IF_ERROR(impl_->check_experts(layer, experts));
  const auto first = experts.first(std::min(experts.size(), impl_->most_ahead));
  return or_out_of_memory("a batch of experts", std::nullopt,
                          [&] { return start_batch(layer, first, true); });
}

Result<ExpertStore::Batch> ExpertStore::start_batch(std::uint32_t layer,
                                                    std::span<const std::uint32_t> experts,
                                                    bool is_ahead) {
  Impl& s = *impl_;
  std::vector<RecordRead> reads;
  reads.reserve(experts.size());
  Batch batch(this, experts.size());  // before the lock, which its destructor takes after an error
  const std::lock_guard lock(s.mutex);
  // What is there is pinned before anything is evicted for the rest.
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const auto slot = s.cache.pin(s.key_of(layer, experts[i]));
    if (!slot.has_value()) continue;
    batch.slots_[i] = *slot;
    batch.handles_[i].was_resident = s.loads[*slot].state == LoadState::kReady;
  }
  MOE_RETURN_IF_ERROR(s.start_reads(layer, experts, batch.slots_, reads));
  for (std::size_t i = 0; i < experts.size(); ++i) {
    batch.handles_[i].layout = &s.manifest.layout_of(layer, experts[i]);
    batch.handles_[i].record = s.cache.memory(batch.slots_[i]).data();
  }
  s.count(batch.slots_, reads, is_ahead);
  return batch;
}

void ExpertStore::Impl::count(std::span<const Slot> slots, std::span<const RecordRead> reads,
                              bool is_ahead) {
  if (is_ahead) {
    stats.ahead_reads += reads.size();
    for (const RecordRead& read : reads) loads[read.tag].is_ahead = true;
    return;
  }
  stats.misses += reads.size();
  stats.hits += slots.size() - reads.size();
  for (const Slot slot : slots) {
    if (std::exchange(loads[slot].is_ahead, false)) ++stats.ahead_used;
  }
}

ExpertStore::Batch::Batch(ExpertStore* store, std::size_t experts)
    : store_(store), handles_(experts), slots_(experts, kNoSlot), order_(experts) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

ExpertStore::Batch::Batch(Batch&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      handles_(std::move(other.handles_)),
      slots_(std::move(other.slots_)),
      order_(std::move(other.order_)),
      given_(std::exchange(other.given_, 0)),
      seen_(std::exchange(other.seen_, 0)) {}

// Moves what has become ready to the end of what was seen. Needs the lock.
void ExpertStore::Batch::collect() {
  const std::vector<RecordLoad>& loads = store_->impl_->loads;
  const auto is_there = [&](std::size_t i) {
    return loads[slots_[i]].state != LoadState::kLoading;
  };
  const auto place = [&](std::size_t i) {
    return std::tuple(handles_[i].was_resident ? 0 : loads[slots_[i]].arrival, i);
  };
  const auto first = order_.begin() + static_cast<std::ptrdiff_t>(seen_);
  const auto last = std::partition(first, order_.end(), is_there);
  std::sort(first, last, [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  seen_ += static_cast<std::size_t>(last - first);
}

// Needs the lock, and place < seen_.
ReadyExpert ExpertStore::Batch::seen_at(std::size_t place) const {
  const std::size_t index = order_[place];
  return {.index = index, .status = store_->impl_->loads[slots_[index]].status};
}

std::optional<ReadyExpert> ExpertStore::Batch::next_ready() {
  if (given_ == order_.size()) return std::nullopt;
  Impl& s = *store_->impl_;
  Impl::Lock lock(s.mutex);
  for (collect(); given_ == seen_; collect()) s.advance(lock);
  ReadyExpert next = seen_at(given_);
  ++given_;
  return next;
}

std::vector<ReadyExpert> ExpertStore::Batch::take_ready() {
  std::vector<ReadyExpert> all;
  if (given_ == order_.size()) return all;
  all.reserve(order_.size() - given_);
  Impl& s = *store_->impl_;
  Impl::Lock lock(s.mutex);
  s.drain(lock);
  collect();
  if (given_ == seen_) {
    const Clock::time_point start = Clock::now();
    for (; given_ == seen_; collect()) s.advance(lock);
    s.stats.wait_seconds += seconds_since(start);
  }
  for (std::size_t place = given_; place < seen_; ++place) all.push_back(seen_at(place));
  given_ = seen_;
  return all;
}

Status ExpertStore::Batch::wait() {
  Impl& s = *store_->impl_;
  Impl::Lock lock(s.mutex);
  s.settle(lock, slots_);
  for (const Slot slot : slots_) {
    if (!s.loads[slot].status.is_ok()) return s.loads[slot].status;
  }
  return Status::ok();
}

ExpertStore::Batch::~Batch() {
  if (store_ == nullptr) return;
  Impl& s = *store_->impl_;
  Impl::Lock lock(s.mutex);
  s.settle(lock, slots_);  // memory must not be used again while it is filled
  for (const Slot slot : slots_) {
    if (slot != kNoSlot) s.cache.unpin(slot);
  }
}

double ExpertStoreStats::hit_rate() const {
  const auto uses = static_cast<double>(hits + misses);
  return uses > 0 ? static_cast<double>(hits) / uses : 0.0;
}

ExpertStoreStats& ExpertStoreStats::operator+=(const ExpertStoreStats& other) {
  hits += other.hits;
  misses += other.misses;
  bytes_read += other.bytes_read;
  ahead_reads += other.ahead_reads;
  ahead_used += other.ahead_used;
  read_seconds += other.read_seconds;
  wait_seconds += other.wait_seconds;
  allocated_bytes += other.allocated_bytes;
  return *this;
}

ExpertStoreStats ExpertStore::stats() const {
  const std::lock_guard lock(impl_->mutex);
  ExpertStoreStats stats = impl_->stats;
  stats.allocated_bytes = impl_->cache.allocated_bytes();
  return stats;
}

void ExpertStore::reset_stats() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stats = {};
}

}  // namespace moepack

#include "runtime/store/expert_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/store/record_cache.h"
#include "runtime/store/record_check.h"
#include "runtime/store/thread_reader.h"

namespace moepack {
namespace {

using Slot = RecordCache::Slot;
// Of an expert of a batch that has no place in the cache yet, or got none because begin() failed.
constexpr Slot kNoSlot = std::numeric_limits<Slot>::max();

enum class LoadState : std::uint8_t {
  kLoading,  // to be read, being read, or to be checked
  kReady,
  kFailed,
};

// How the record of a cache entry came to be there.
struct RecordLoad {
  LoadState state = LoadState::kLoading;
  Status status = {};  // of kFailed
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  std::uint64_t arrival = 0;  // counts the records that became ready or failed
};

std::uint64_t largest_record(const PackManifest& manifest) {
  std::uint64_t largest = 0;
  for (const ExpertLayout& layout : manifest.layouts) {
    largest = std::max(largest, layout.record_bytes);
  }
  return record_memory_bytes(largest);
}

Status check_budget(const PackManifest& manifest, const ExpertStoreOptions& options) {
  const std::uint64_t largest = largest_record(manifest);
  const std::uint64_t batches = std::max(1U, options.concurrent_batches);
  if (options.cache_bytes / batches >= largest) return Status::ok();
  return invalid_argument(
      "the expert cache of " + std::to_string(options.cache_bytes) +
          " bytes cannot hold one expert of " + std::to_string(largest) + " bytes" +
          (batches > 1 ? " for each of " + std::to_string(batches) + " batches" : std::string()),
      "raise --cache-mb");
}

std::vector<std::filesystem::path> layer_paths(const std::filesystem::path& pack_directory,
                                               const PackManifest& manifest) {
  std::vector<std::filesystem::path> paths;
  for (const LayerEntry& layer : manifest.layers) paths.push_back(pack_directory / layer.file);
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
        cache(store_options.cache_bytes, std::move(policy)),
        check(manifest, files),
        reader(std::move(record_reader)) {}

  Status check_experts(std::uint32_t layer, std::span<const std::uint32_t> experts) const;
  RecordKey key_of(std::uint32_t layer, std::uint32_t expert) const {
    return RecordKey{layer} * manifest.num_experts + expert;
  }

  // All of these need the lock; those that take it let go of it while they wait or compare.
  Status add_missing(std::uint32_t layer, std::span<const std::uint32_t> experts,
                     std::vector<Slot>& slots, std::vector<RecordRead>& reads);
  Status submit(const std::vector<RecordRead>& reads);
  void advance(Lock& lock);
  void drain(Lock& lock);
  void reap(Lock& lock, bool wait);
  void check_all(Lock& lock);
  void check_one(Lock& lock);
  void take_completion(RecordCompletion completion);
  void finish(Slot slot, Status status);
  Status short_read(const RecordLoad& load, std::size_t bytes) const;

  const PackManifest manifest;
  const ExpertStoreOptions options;
  const std::vector<std::filesystem::path> files;

  mutable std::mutex mutex;  // guards what follows
  // Records became ready or arrived, or a thread ceased to reap: what waiting threads look for.
  std::condition_variable progress;
  RecordCache cache;
  RecordCheck check;
  std::vector<RecordLoad> loads;  // by slot
  std::deque<Slot> arrived;       // read, to be checked
  std::size_t outstanding = 0;    // reads submitted and not reaped
  bool reaping = false;           // a thread is inside reader->reap()
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
    if (expert < manifest.num_experts) continue;
    return invalid_argument("the pack has no expert " + std::to_string(expert));
  }
  return Status::ok();
}

// Gives every expert without a slot one, and a read to those that are not on their way already.
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
    MOE_ASSIGN_OR_RETURN(const Slot slot, cache.add(key, size));
    slots[i] = slot;
    if (slot >= loads.size()) loads.resize(slot + 1);
    loads[slot] = {.layer = layer, .expert = experts[i]};
    reads.push_back({.tag = slot,
                     .file = layer,
                     .offset = manifest.layers[layer].experts[experts[i]].offset,
                     .out = cache.memory(slot)});
  }
  return Status::ok();
}

Status ExpertStore::Impl::submit(const std::vector<RecordRead>& reads) {
  if (reads.empty()) return Status::ok();
  const Clock::time_point start = Clock::now();  // the first read may end before submit() does
  MOE_RETURN_IF_ERROR(reader->submit(reads));
  if (outstanding == 0) busy_since = start;
  outstanding += reads.size();
  for (const RecordRead& read : reads) stats.bytes_read += read.out.size();
  return Status::ok();
}

// Does one piece of the work that stands between a read and its use, or waits for the thread that
// does. The caller's record is not ready, so there is such work or such a thread.
void ExpertStore::Impl::advance(Lock& lock) {
  if (!arrived.empty()) {
    check_one(lock);
  } else if (outstanding > 0 && !reaping) {
    reap(lock, true);
  } else {
    progress.wait(lock);
  }
}

// Makes everything ready that has come in, without waiting for more.
void ExpertStore::Impl::drain(Lock& lock) {
  if (outstanding > 0 && !reaping) reap(lock, false);
  check_all(lock);
}

void ExpertStore::Impl::check_all(Lock& lock) {
  while (!arrived.empty()) check_one(lock);
}

void ExpertStore::Impl::reap(Lock& lock, bool wait) {
  reaping = true;
  lock.unlock();
  std::vector<RecordCompletion> completions = reader->reap(wait);
  lock.lock();
  reaping = false;
  for (RecordCompletion& completion : completions) take_completion(std::move(completion));
  progress.notify_all();
}

void ExpertStore::Impl::take_completion(RecordCompletion completion) {
  const Slot slot = completion.tag;
  const RecordLoad& load = loads[slot];
  last_finished = std::max(last_finished, completion.finished);
  if (--outstanding == 0) {
    stats.read_seconds += std::chrono::duration<double>(last_finished - busy_since).count();
  }
  if (!completion.status.is_ok()) {
    finish(slot, std::move(completion.status));
  } else if (completion.bytes < cache.memory(slot).size()) {
    finish(slot, short_read(load, completion.bytes));
  } else if (check.is_due(load.layer, load.expert)) {
    arrived.push_back(slot);
  } else {
    finish(slot, Status::ok());
  }
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

// The checksum is computed without the lock: several waiting threads share this work.
void ExpertStore::Impl::check_one(Lock& lock) {
  const Slot slot = arrived.front();
  arrived.pop_front();
  const std::uint32_t layer = loads[slot].layer;
  const std::uint32_t expert = loads[slot].expert;
  const std::span<const std::byte> record = cache.memory(slot);
  lock.unlock();
  Status status = check.compare(layer, expert, record);
  lock.lock();
  if (status.is_ok()) check.passed(layer, expert);
  finish(slot, std::move(status));
  progress.notify_all();
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
  return open_with(std::move(reader), least_recently_used(), pack_directory, manifest, options);
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

std::size_t ExpertStore::max_batch(std::uint32_t layer) const {
  std::uint64_t largest = 1;
  for (std::uint32_t e = 0; e < impl_->manifest.num_experts; ++e) {
    largest = std::max(largest, impl_->manifest.layout_of(layer, e).record_bytes);
  }
  const std::uint64_t share =
      impl_->options.cache_bytes / std::max(1U, impl_->options.concurrent_batches);
  return std::max<std::uint64_t>(1, share / record_memory_bytes(largest));
}

Result<ExpertStore::Batch> ExpertStore::begin(std::uint32_t layer,
                                              std::span<const std::uint32_t> experts) {
  Impl& s = *impl_;
  MOE_RETURN_IF_ERROR(s.check_experts(layer, experts));
  Batch batch(this);  // before the lock, which its destructor takes after an error
  batch.handles_.resize(experts.size());
  batch.slots_.assign(experts.size(), kNoSlot);
  batch.pending_.resize(experts.size());
  const std::lock_guard lock(s.mutex);
  // What is there is pinned before anything is evicted for the rest.
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const auto slot = s.cache.pin(s.key_of(layer, experts[i]));
    if (!slot.has_value()) continue;
    batch.slots_[i] = *slot;
    batch.handles_[i].was_resident = s.loads[*slot].state == LoadState::kReady;
  }
  std::vector<RecordRead> reads;
  Status status = s.add_missing(layer, experts, batch.slots_, reads);
  if (status.is_ok()) status = s.submit(reads);
  if (!status.is_ok()) {
    for (const RecordRead& read : reads) s.finish(read.tag, status);
    return status;
  }
  for (std::size_t i = 0; i < experts.size(); ++i) {
    batch.handles_[i].layout = &s.manifest.layout_of(layer, experts[i]);
    batch.handles_[i].record = s.cache.memory(batch.slots_[i]).data();
    batch.pending_[i] = i;
  }
  s.stats.misses += reads.size();
  s.stats.hits += experts.size() - reads.size();
  return batch;
}

ExpertStore::Batch::Batch(Batch&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      handles_(std::move(other.handles_)),
      slots_(std::move(other.slots_)),
      pending_(std::move(other.pending_)),
      ready_(std::move(other.ready_)) {}

// Moves what has become ready from pending_ to ready_. Needs the lock.
void ExpertStore::Batch::collect() {
  const std::vector<RecordLoad>& loads = store_->impl_->loads;
  const auto waits = [&](std::size_t i) { return loads[slots_[i]].state == LoadState::kLoading; };
  const auto arrival = [&](std::size_t i) {
    return handles_[i].was_resident ? 0 : loads[slots_[i]].arrival;
  };
  const auto first = std::stable_partition(pending_.begin(), pending_.end(), waits);
  std::stable_sort(first, pending_.end(),
                   [&](std::size_t a, std::size_t b) { return arrival(a) < arrival(b); });
  for (auto it = first; it != pending_.end(); ++it) {
    ready_.push_back({.index = *it, .status = loads[slots_[*it]].status});
  }
  pending_.erase(first, pending_.end());
}

std::optional<ReadyExpert> ExpertStore::Batch::next_ready() {
  if (ready_.empty() && !pending_.empty()) {
    Impl& s = *store_->impl_;
    Impl::Lock lock(s.mutex);
    for (collect(); ready_.empty(); collect()) s.advance(lock);
  }
  if (ready_.empty()) return std::nullopt;
  ReadyExpert next = std::move(ready_.front());
  ready_.pop_front();
  return next;
}

std::vector<ReadyExpert> ExpertStore::Batch::take_ready() {
  if (!pending_.empty()) {
    Impl& s = *store_->impl_;
    Impl::Lock lock(s.mutex);
    s.drain(lock);
    for (collect(); ready_.empty(); collect()) {
      s.advance(lock);
      s.check_all(lock);
    }
  }
  std::vector<ReadyExpert> all(std::make_move_iterator(ready_.begin()),
                               std::make_move_iterator(ready_.end()));
  ready_.clear();
  return all;
}

Status ExpertStore::Batch::wait() {
  Impl& s = *store_->impl_;
  Status first;
  Impl::Lock lock(s.mutex);
  for (const Slot slot : slots_) {
    if (slot == kNoSlot) continue;
    while (s.loads[slot].state == LoadState::kLoading) s.advance(lock);
    if (first.is_ok()) first = s.loads[slot].status;
  }
  return first;
}

ExpertStore::Batch::~Batch() {
  if (store_ == nullptr) return;
  (void)wait();  // memory must not be used again while it is filled
  Impl& s = *store_->impl_;
  const std::lock_guard lock(s.mutex);
  for (const Slot slot : slots_) {
    if (slot != kNoSlot) s.cache.unpin(slot);
  }
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

#include "runtime/model/expert_store.h"

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/elapsed.h"
#include "formats/base/file.h"

namespace moepack {
namespace {

constexpr std::size_t kRecordAlignment = 4096;

// A record in memory, or on its way there.
struct Entry {
  std::uint64_t key = 0;
  AlignedBuffer buffer;
  bool pinned = false;
  bool loading = false;  // guarded by Impl::mutex
  Status status;         // guarded by Impl::mutex while loading
  std::list<std::size_t>::iterator recency;
};

}  // namespace

// Threading: the cache (entries, recency, index) belongs to the caller's thread. Readers get jobs
// through the queue, fill the buffer they were given, and report under the mutex.
struct ExpertStore::Impl {
  struct Job {
    std::size_t slot = 0;
    const File* file = nullptr;
    std::uint64_t offset = 0;
    std::span<std::byte> out;
    std::uint64_t checksum = 0;
    bool verify = false;
    std::uint32_t expert = 0;
  };

  PackManifest manifest;
  std::vector<File> files;
  ExpertStoreOptions options;

  std::deque<Entry> entries;  // stable addresses
  std::vector<std::size_t> free_slots;
  std::list<std::size_t> recency;  // front: most recently used
  std::unordered_map<std::uint64_t, std::size_t> index;
  std::map<std::size_t, std::vector<AlignedBuffer>> spare;  // by size, from evicted records
  std::uint64_t used_bytes = 0;                             // of entries and spares
  std::vector<bool> verified;                               // [layer * experts + expert]

  mutable std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::deque<Job> jobs;
  std::size_t in_flight = 0;
  Clock::time_point busy_since;
  bool stopping = false;
  ExpertStoreStats stats;
  std::vector<std::thread> readers;

  void read_loop();
  static Status run(const Job& job);
  void submit(std::vector<Job> batch);
  bool evict_one();
  Result<AlignedBuffer> take_buffer(std::size_t size);
  Result<std::size_t> add_entry(std::uint64_t key, std::size_t size);
  void remove_entry(std::size_t slot);
};

void ExpertStore::Impl::read_loop() {
  std::unique_lock lock(mutex);
  while (true) {
    work_ready.wait(lock, [&] { return stopping || !jobs.empty(); });
    if (jobs.empty()) return;
    const Job job = jobs.front();
    jobs.pop_front();
    lock.unlock();
    Status status = run(job);
    lock.lock();
    Entry& entry = entries[job.slot];
    entry.status = std::move(status);
    entry.loading = false;
    if (--in_flight == 0) {
      stats.read_seconds += seconds_since(busy_since);
    }
    work_done.notify_all();
  }
}

Status ExpertStore::Impl::run(const Job& job) {
  MOE_RETURN_IF_ERROR(job.file->read_at(job.offset, job.out));
  if (!job.verify) return Status::ok();
  const std::uint64_t sum = checksum(job.out);
  if (sum == job.checksum) return Status::ok();
  return corrupt(Where{.file = job.file->path(), .offset = job.offset},
                 "expert " + std::to_string(job.expert) + " has checksum " + checksum_text(sum) +
                     ", " + kPackManifestName + " says " + checksum_text(job.checksum),
                 "the file is damaged; convert the checkpoint again");
}

void ExpertStore::Impl::submit(std::vector<Job> batch) {
  if (batch.empty()) return;
  {
    const std::lock_guard lock(mutex);
    if (in_flight == 0) busy_since = Clock::now();
    in_flight += batch.size();
    for (Job& job : batch) {
      stats.bytes_read += job.out.size();
      jobs.push_back(job);
    }
  }
  work_ready.notify_all();
}

bool ExpertStore::Impl::evict_one() {
  for (auto it = recency.rbegin(); it != recency.rend(); ++it) {
    if (entries[*it].pinned) continue;
    const std::size_t slot = *it;
    AlignedBuffer buffer = std::move(entries[slot].buffer);
    remove_entry(slot);
    spare[buffer.size()].push_back(std::move(buffer));
    return true;
  }
  return false;
}

// A buffer of exactly `size` bytes: a spare one, a new one within the budget, or an evicted one.
Result<AlignedBuffer> ExpertStore::Impl::take_buffer(std::size_t size) {
  while (true) {
    if (auto same = spare.find(size); same != spare.end() && !same->second.empty()) {
      AlignedBuffer buffer = std::move(same->second.back());
      same->second.pop_back();
      return buffer;
    }
    if (used_bytes + size <= options.cache_bytes) {
      MOE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(size, kRecordAlignment));
      used_bytes += size;
      return buffer;
    }
    // Spares of other sizes give their memory back before anything useful is evicted.
    bool freed = false;
    for (auto& [spare_size, buffers] : spare) {
      if (buffers.empty()) continue;
      buffers.pop_back();
      used_bytes -= spare_size;
      freed = true;
      break;
    }
    if (!freed && !evict_one()) {
      return invalid_argument("the expert cache cannot hold one batch", "raise --cache-mb");
    }
  }
}

Result<std::size_t> ExpertStore::Impl::add_entry(std::uint64_t key, std::size_t size) {
  MOE_ASSIGN_OR_RETURN(AlignedBuffer buffer, take_buffer(size));
  std::size_t slot = entries.size();
  if (free_slots.empty()) {
    const std::lock_guard lock(mutex);  // readers index the deque
    entries.emplace_back();
  } else {
    slot = free_slots.back();
    free_slots.pop_back();
  }
  Entry& entry = entries[slot];
  entry.key = key;
  entry.buffer = std::move(buffer);
  entry.status = Status::ok();
  recency.push_front(slot);
  entry.recency = recency.begin();
  index.emplace(key, slot);
  return slot;
}

void ExpertStore::Impl::remove_entry(std::size_t slot) {
  Entry& entry = entries[slot];
  index.erase(entry.key);
  recency.erase(entry.recency);
  entry.pinned = false;
  free_slots.push_back(slot);
}

ExpertStore::ExpertStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ExpertStore::~ExpertStore() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->work_ready.notify_all();
  for (std::thread& reader : impl_->readers) reader.join();
}

Result<std::unique_ptr<ExpertStore>> ExpertStore::open(const std::filesystem::path& pack_directory,
                                                       const PackManifest& manifest,
                                                       const ExpertStoreOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->manifest = manifest;
  impl->options = options;
  impl->verified.resize(std::size_t{manifest.num_layers} * manifest.num_experts);
  std::uint64_t largest = 0;
  for (const ExpertLayout& layout : manifest.layouts) {
    largest = std::max(largest, layout.record_bytes);
  }
  if (options.cache_bytes < largest) {
    return invalid_argument("the expert cache of " + std::to_string(options.cache_bytes) +
                                " bytes cannot hold one expert of " + std::to_string(largest) +
                                " bytes",
                            "raise --cache-mb");
  }
  for (const LayerEntry& layer : manifest.layers) {
    MOE_ASSIGN_OR_RETURN(File file, File::open(pack_directory / layer.file));
    impl->files.push_back(std::move(file));
  }
  Impl* raw = impl.get();
  std::unique_ptr<ExpertStore> store(new ExpertStore(std::move(impl)));
  for (std::uint32_t i = 0; i < std::max(1U, options.io_threads); ++i) {
    raw->readers.emplace_back([raw] { raw->read_loop(); });
  }
  return store;
}

std::size_t ExpertStore::max_batch(std::uint32_t layer) const {
  std::uint64_t largest = 1;
  for (std::uint32_t e = 0; e < impl_->manifest.num_experts; ++e) {
    largest = std::max(largest, impl_->manifest.layout_of(layer, e).record_bytes);
  }
  return std::max<std::uint64_t>(1, impl_->options.cache_bytes / largest);
}

Result<ExpertStore::Batch> ExpertStore::begin(std::uint32_t layer,
                                              std::span<const std::uint32_t> experts) {
  Impl& s = *impl_;
  Batch batch(this);
  std::vector<Impl::Job> jobs;
  std::vector<std::uint64_t> missing;
  // Pin what is there before anything is evicted for the rest.
  batch.handles_.resize(experts.size());
  batch.slots_.assign(experts.size(), std::numeric_limits<std::size_t>::max());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    assert(experts[i] < s.manifest.num_experts);
    batch.handles_[i].layout = &s.manifest.layout_of(layer, experts[i]);
    const std::uint64_t key = std::uint64_t{layer} * s.manifest.num_experts + experts[i];
    const auto found = s.index.find(key);
    if (found == s.index.end()) continue;
    Entry& entry = s.entries[found->second];
    entry.pinned = true;
    s.recency.splice(s.recency.begin(), s.recency, entry.recency);
    batch.slots_[i] = found->second;
    batch.handles_[i].record = entry.buffer.data();
    batch.handles_[i].was_resident = true;
  }
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (batch.handles_[i].was_resident) continue;
    const std::uint64_t key = std::uint64_t{layer} * s.manifest.num_experts + experts[i];
    const std::size_t size = batch.handles_[i].layout->record_bytes;
    const auto added = s.add_entry(key, size);
    if (!added.is_ok()) {
      s.submit(std::move(jobs));
      return added.status();
    }
    const std::size_t slot = added.value();
    Entry& entry = s.entries[slot];
    entry.pinned = true;
    entry.loading = true;
    batch.slots_[i] = slot;
    batch.handles_[i].record = entry.buffer.data();
    const ExpertEntry& at = s.manifest.layers[layer].experts[experts[i]];
    jobs.push_back({.slot = slot,
                    .file = &s.files[layer],
                    .offset = at.offset,
                    .out = entry.buffer.span(),
                    .checksum = at.checksum,
                    .verify = s.manifest.has_checksums && !s.verified[key],
                    .expert = experts[i]});
  }
  {
    const std::lock_guard lock(s.mutex);
    s.stats.misses += jobs.size();
    s.stats.hits += experts.size() - jobs.size();
  }
  s.submit(std::move(jobs));
  return batch;
}

ExpertStore::Batch::Batch(Batch&& other) noexcept
    : store_(other.store_), handles_(std::move(other.handles_)), slots_(std::move(other.slots_)) {
  other.store_ = nullptr;
}

Status ExpertStore::Batch::wait() {
  Impl& s = *store_->impl_;
  Status first;
  std::unique_lock lock(s.mutex);
  for (const std::size_t slot : slots_) {
    if (slot >= s.entries.size()) continue;
    Entry& entry = s.entries[slot];
    s.work_done.wait(lock, [&] { return !entry.loading; });
    if (first.is_ok() && !entry.status.is_ok()) first = entry.status;
    if (entry.status.is_ok()) s.verified[entry.key] = true;
  }
  return first;
}

ExpertStore::Batch::~Batch() {
  if (store_ == nullptr) return;
  Impl& s = *store_->impl_;
  (void)wait();  // buffers must not be reused while a reader fills them
  for (const std::size_t slot : slots_) {
    if (slot >= s.entries.size()) continue;
    s.entries[slot].pinned = false;
    if (s.entries[slot].status.is_ok()) continue;
    AlignedBuffer buffer = std::move(s.entries[slot].buffer);
    s.remove_entry(slot);
    s.spare[buffer.size()].push_back(std::move(buffer));
  }
}

ExpertStoreStats ExpertStore::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

void ExpertStore::reset_stats() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stats = {};
}

}  // namespace moepack

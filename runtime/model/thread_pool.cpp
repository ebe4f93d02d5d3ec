#include "runtime/model/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace moepack {
namespace {

// How long a thread looks before it sleeps. The gaps between the parallel parts of a layer are
// shorter than waking a sleeping thread takes.
constexpr std::chrono::microseconds kLookFor{100};
constexpr int kLooksPerClock = 32;  // reading the clock takes as long as a few looks
constexpr std::size_t kCacheLine = 64;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether `is_there` came true in the time that looking may take.
template <typename Condition>
bool look_for(std::chrono::microseconds time, const Condition& is_there) {
  if (time.count() == 0) return is_there();
  const auto until = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (is_there()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// The ranges of one parallel_for.
struct Job {
  const ThreadPool::Body* body = nullptr;
  std::size_t count = 0;
  std::size_t grain = 1;
  std::size_t chunks = 0;

  void run(std::size_t chunk, std::size_t worker) const {
    const std::size_t begin = chunk * grain;
    (*body)(begin, begin + std::min(grain, count - begin), worker);
  }
};

// The chunks of one thread, which takes them one after the other. Nothing else shares its line.
struct alignas(kCacheLine) Share {
  // Those that nobody has taken; below zero by one for each thread that came too late.
  std::atomic<std::int64_t> left{0};
  std::size_t end = 0;  // written before any `left` of the call, read behind a step of one
};

}  // namespace

// A thread that lowers a share's `left` from above zero owns one chunk of the job that stands in
// `job`, and the call cannot end before that thread lowers `unfinished`: so it may read `job`. A
// thread that finds nothing left reads nothing, however late it comes. What it takes may belong to
// a later call than the one it woke for, which is as good.
struct ThreadPool::Impl {
  // Calls so far that were shared. Workers watch it, so nothing else shares its line.
  alignas(kCacheLine) std::atomic<std::uint64_t> calls{0};
  alignas(kCacheLine) std::atomic<std::size_t> unfinished{0};  // chunks
  alignas(kCacheLine) Job job;  // written by the caller while no chunk is left or unfinished

  // Who sleeps announces it before looking a last time, who brings work looks for sleepers after
  // bringing it (both in the one order of sequentially consistent operations): one of them sees the
  // other.
  alignas(kCacheLine) std::atomic<std::size_t> sleeping_workers{0};
  std::atomic<bool> caller_sleeps{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable finished;
  bool stop = false;  // under the mutex

  std::chrono::microseconds look_time{0};
  std::vector<Share> shares;  // of the caller and of each worker that was asked for
  std::vector<std::thread> workers;

  explicit Impl(std::size_t threads) : shares(threads) {}

  std::size_t size() const { return workers.size() + 1; }

  // Takes chunks of a share until none is left; returns how many.
  std::size_t run_share(std::size_t share, std::size_t worker) {
    Share& from = shares[share];
    std::size_t done = 0;
    while (from.left.load(std::memory_order_relaxed) > 0) {
      const std::int64_t before = from.left.fetch_sub(1, std::memory_order_acq_rel);
      if (before <= 0) break;
      job.run(from.end - static_cast<std::size_t>(before), worker);
      ++done;
    }
    return done;
  }

  // Its own share, then what others have left of theirs.
  void run_chunks(std::size_t worker) {
    std::size_t done = 0;
    for (std::size_t share = worker; share < size(); ++share) done += run_share(share, worker);
    for (std::size_t share = 0; share < worker; ++share) done += run_share(share, worker);
    // The job stays until this thread has told what it did.
    if (done == 0 || unfinished.fetch_sub(done) != done) return;
    if (worker == 0 || !caller_sleeps.load()) return;
    const std::scoped_lock lock(mutex);
    finished.notify_one();
  }

  void work(std::size_t worker) {
    std::uint64_t seen = 0;
    const auto has_work = [&] { return calls.load(std::memory_order_acquire) != seen; };
    while (look_for(look_time, has_work) || sleep_until_work(seen)) {
      seen = calls.load(std::memory_order_acquire);
      run_chunks(worker);
    }
  }

  // False when the pool ends.
  bool sleep_until_work(std::uint64_t seen) {
    std::unique_lock lock(mutex);
    ++sleeping_workers;
    wake.wait(lock, [&] { return stop || calls.load() != seen; });
    --sleeping_workers;
    return !stop;
  }

  void begin(const Job& next) {
    job = next;
    unfinished.store(next.chunks, std::memory_order_relaxed);
    for (std::size_t i = 0; i < size(); ++i) {
      shares[i].end = equal_part(next.chunks, size(), i).end;
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      shares[i].left.store(static_cast<std::int64_t>(shares[i].end - begin),
                           std::memory_order_release);
      begin = shares[i].end;
    }
    calls.fetch_add(1);
    const std::size_t sleeping = sleeping_workers.load();
    if (sleeping == 0) return;
    // A sleeper that has not let go of the mutex yet would miss the call.
    { const std::scoped_lock lock(mutex); }
    if (next.chunks > sleeping) {
      wake.notify_all();
    } else {
      for (std::size_t i = 1; i < next.chunks; ++i) wake.notify_one();
    }
  }

  void wait_until_finished() {
    const auto is_finished = [this] { return unfinished.load(std::memory_order_acquire) == 0; };
    if (look_for(look_time, is_finished)) return;
    std::unique_lock lock(mutex);
    caller_sleeps = true;
    finished.wait(lock, [this] { return unfinished.load() == 0; });
    caller_sleeps = false;
  }
};

ThreadPool::ThreadPool(std::size_t threads)
    : impl_(std::make_unique<Impl>(std::max<std::size_t>(threads, 1))) {
  const std::size_t extra = impl_->shares.size() - 1;
  // Looking only helps while every thread has a processor of its own.
  if (threads <= std::thread::hardware_concurrency()) impl_->look_time = kLookFor;
  impl_->workers.reserve(extra);
  try {
    for (std::size_t i = 0; i < extra; ++i) {
      impl_->workers.emplace_back([impl = impl_.get(), i] { impl->work(i + 1); });
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that started carry the work, size() tells how many.
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->stop = true;
    impl_->wake.notify_all();
  }
  for (std::thread& worker : impl_->workers) worker.join();
}

std::size_t ThreadPool::size() const { return impl_->size(); }

std::size_t ThreadPool::share_end(std::size_t worker) const { return impl_->shares[worker].end; }

void ThreadPool::parallel_for(std::size_t count, std::size_t grain, Body body) {
  if (count == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  const Job job{&body, count, grain, count / grain + (count % grain != 0 ? 1U : 0U)};
  if (impl_->workers.empty() || job.chunks == 1) {
    impl_->shares.front().end = job.chunks;
    for (std::size_t chunk = 0; chunk < job.chunks; ++chunk) job.run(chunk, 0);
    return;
  }
  impl_->begin(job);
  impl_->run_chunks(0);
  impl_->wait_until_finished();
}

}  // namespace moepack

#include "runtime/model/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace moepack {
namespace {

// A worker that found nothing to do looks again this often before it sleeps. The gaps between the
// parallel parts of a layer are shorter than waking a sleeping thread takes.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

using Body = std::function<void(std::size_t, std::size_t, std::size_t)>;

// The ranges of one parallel_for.
struct Job {
  const Body* body = nullptr;
  std::size_t count = 0;
  std::size_t grain = 1;
  std::size_t chunks = 0;
};

}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> workers;
  int spins = 0;

  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  // Written under the mutex; `epoch` is also watched without it by spinning workers.
  std::atomic<std::uint64_t> epoch{0};
  bool open = false;  // the job of this epoch may still be entered
  bool stop = false;
  std::size_t inside = 0;  // workers that entered the job
  Job job;

  std::atomic<std::size_t> next_chunk{0};

  void run_chunks(const Job& mine, std::size_t worker) {
    while (true) {
      const std::size_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= mine.chunks) return;
      const std::size_t begin = chunk * mine.grain;
      const std::size_t end = begin + std::min(mine.grain, mine.count - begin);
      (*mine.body)(begin, end, worker);
    }
  }

  void work(std::size_t worker) {
    std::uint64_t seen = 0;
    while (true) {
      for (int i = 0; i < spins && epoch.load(std::memory_order_relaxed) == seen; ++i) {
        pause_briefly();
      }
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return epoch.load(std::memory_order_relaxed) != seen; });
      seen = epoch.load(std::memory_order_relaxed);
      if (stop) return;
      // A worker that wakes late must not touch a job whose caller has returned.
      if (!open) continue;
      ++inside;
      const Job mine = job;
      lock.unlock();
      run_chunks(mine, worker);
      lock.lock();
      if (--inside == 0 && !open) idle.notify_one();
    }
  }

  void announce() {
    epoch.fetch_add(1, std::memory_order_relaxed);
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(std::size_t threads) : impl_(std::make_unique<Impl>()) {
  const std::size_t extra = threads > 1 ? threads - 1 : 0;
  // Spinning only helps while every thread has a processor of its own.
  impl_->spins = threads <= std::thread::hardware_concurrency() ? kSpins : 0;
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
    impl_->announce();
  }
  for (std::thread& worker : impl_->workers) worker.join();
}

std::size_t ThreadPool::size() const { return impl_->workers.size() + 1; }

void ThreadPool::parallel_for(std::size_t count, std::size_t grain, const Body& body) {
  if (count == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  const Job job{&body, count, grain, count / grain + (count % grain != 0 ? 1U : 0U)};
  if (impl_->workers.empty() || job.chunks == 1) {
    for (std::size_t begin = 0; begin < count; begin += std::min(grain, count - begin)) {
      body(begin, begin + std::min(grain, count - begin), 0);
    }
    return;
  }
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->next_chunk.store(0, std::memory_order_relaxed);
    impl_->job = job;
    impl_->open = true;
    impl_->announce();
  }
  impl_->run_chunks(job, 0);
  std::unique_lock lock(impl_->mutex);
  impl_->open = false;
  impl_->idle.wait(lock, [this] { return impl_->inside == 0; });
}

}  // namespace moepack

#include "runtime/store/stall_watch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "formats/base/elapsed.h"

namespace moepack {
namespace {

std::string seconds_text(std::chrono::milliseconds time) {
  const std::string tenths = std::to_string(time.count() / 100);
  return tenths.size() < 2
             ? "0." + tenths
             : tenths.substr(0, tenths.size() - 1) + "." + tenths.substr(tenths.size() - 1);
}

}  // namespace

struct StallWatch::Impl {
  std::function<std::string()> source;
  StoreNotice notice;
  std::chrono::milliseconds patience{};

  // When the wait under way began, as ticks of Clock; 0: nobody waits.
  std::atomic<Clock::rep> since{0};

  std::mutex mutex;  // guards `stopping`
  std::condition_variable stop;
  bool stopping = false;
  std::thread thread;

  std::unique_ptr<RecordReader> reader;  // last: no read is under way when the rest goes

  void watch();
};

void StallWatch::Impl::watch() {
  const auto step =
      std::clamp(patience / 5, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
  Clock::rep told_of = 0;  // the wait that was told of
  std::string silent;      // what it waited for
  auto limit = patience;
  std::unique_lock lock(mutex);
  while (!stop.wait_for(lock, step, [this] { return stopping; })) {
    const Clock::rep began = since;
    const auto now = Clock::now().time_since_epoch();
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - Clock::duration(told_of));
    try {
      if (told_of != 0 && began != told_of) {
        notice(silent + ": the disk answers again after about " + seconds_text(waited) + " s");
        told_of = 0;
        limit = patience;
      }
      if (began == 0 || now - Clock::duration(began) < limit) continue;
      silent = source();
      told_of = began;
      notice(silent + ": the disk has given nothing for " + seconds_text(limit) +
             " s; still waiting, Ctrl-C ends");
      limit *= 2;
    } catch (const std::bad_alloc&) {  // told the next time
    }
  }
}

StallWatch::StallWatch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->stop.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<StallWatch>> StallWatch::open(std::unique_ptr<RecordReader> reader,
                                                     std::function<std::string()> source,
                                                     StoreNotice notice,
                                                     std::chrono::milliseconds patience) {
  std::unique_ptr<StallWatch> watch(new StallWatch(std::make_unique<Impl>()));
  Impl& w = *watch->impl_;
  w.source = std::move(source);
  w.notice = std::move(notice);
  w.patience = patience;
  w.reader = std::move(reader);
  try {
    w.thread = std::thread([&w] { w.watch(); });
  } catch (const std::system_error& error) {
    return make_error(StatusCode::kIo, Where{},
                      std::string("cannot start the thread that watches the disk: ") + error.what(),
                      "raise the limit of threads (ulimit -u) or end other programs");
  }
  return watch;
}

Status StallWatch::submit(std::span<const RecordRead> reads) {
  return impl_->reader->submit(reads);
}

std::size_t StallWatch::reap(std::span<RecordCompletion> out, bool wait) noexcept {
  if (!wait) return impl_->reader->reap(out, false);
  const std::size_t ready = impl_->reader->reap(out, false);
  if (ready > 0) return ready;
  impl_->since = Clock::now().time_since_epoch().count();
  const std::size_t count = impl_->reader->reap(out, true);
  impl_->since = 0;
  return count;
}

}  // namespace moepack

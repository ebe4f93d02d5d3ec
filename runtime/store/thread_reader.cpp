#include "runtime/store/thread_reader.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/store/record_file.h"

namespace moepack {

struct ThreadReader::Impl {
  std::vector<RecordFile> files;
  std::vector<std::thread> threads;

  std::mutex mutex;  // guards what follows
  std::condition_variable submitted;
  std::condition_variable completed;
  // Jobs move from list to list and are never copied, so that memory is needed by the submission
  // alone.
  std::list<RecordJob> waiting;
  std::list<RecordJob> done;
  bool stopping = false;

  Status start_threads(std::uint32_t count, const ThreadStarter& start);
  void read_loop();
  void run(RecordJob& job) const;
};

Status ThreadReader::Impl::start_threads(std::uint32_t count, const ThreadStarter& start) {
  const std::function<void()> body = [this] { read_loop(); };
  threads.reserve(count);
  try {
    for (std::uint32_t i = 0; i < count; ++i) {
      threads.push_back(start ? start(body) : std::thread(body));
    }
  } catch (const std::system_error& error) {
    return make_error(
        StatusCode::kIo, Where{},
        "cannot start " + std::to_string(count) + " threads that read experts: " + error.what(),
        "raise the limit of threads (ulimit -u) or end other programs");
  }
  return Status::ok();
}

void ThreadReader::Impl::read_loop() {
  std::unique_lock lock(mutex);
  while (true) {
    submitted.wait(lock, [this] { return stopping || !waiting.empty(); });
    if (stopping) return;
    std::list<RecordJob> mine;
    mine.splice(mine.begin(), waiting, waiting.begin());
    lock.unlock();
    run(mine.front());
    lock.lock();
    done.splice(done.end(), mine);
    completed.notify_one();
  }
}

void ThreadReader::Impl::run(RecordJob& job) const {
  const RecordFile& file = files[job.read.file];
  if (begin_job(file, job)) {
    while (!take_result(file, job, read_piece(file, next_piece(job)))) {
    }
  }
  if (settle_job(file, job)) hash_job(job);
}

ThreadReader::ThreadReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ThreadReader::~ThreadReader() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->submitted.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

Result<std::unique_ptr<ThreadReader>> ThreadReader::open(
    const std::vector<std::filesystem::path>& files, std::uint32_t threads, IoMode mode,
    const ThreadStarter& start) {
  // Its destructor ends the threads that did start when a later one does not.
  std::unique_ptr<ThreadReader> reader(new ThreadReader(std::make_unique<Impl>()));
  MOE_ASSIGN_OR_RETURN(reader->impl_->files, open_record_files(files, mode));
  MOE_RETURN_IF_ERROR(reader->impl_->start_threads(std::max(1U, threads), start));
  return reader;
}

Status ThreadReader::submit(std::span<const RecordRead> reads) {
  for (const RecordRead& read : reads) {
    if (read.file < impl_->files.size()) continue;
    return invalid_argument("there is no layer file " + std::to_string(read.file));
  }
  std::list<RecordJob> jobs;
  for (const RecordRead& read : reads) jobs.push_back(RecordJob{.read = read});
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->waiting.splice(impl_->waiting.end(), jobs);
  }
  impl_->submitted.notify_all();
  return Status::ok();
}

std::size_t ThreadReader::reap(std::span<RecordCompletion> out, bool wait) noexcept {
  std::list<RecordJob>& done = impl_->done;
  std::unique_lock lock(impl_->mutex);
  if (wait) impl_->completed.wait(lock, [&] { return !done.empty(); });
  std::size_t count = 0;
  for (; count < out.size() && !done.empty(); ++count) {
    out[count] = std::move(done.front().completion);
    done.pop_front();
  }
  return count;
}

}  // namespace moepack

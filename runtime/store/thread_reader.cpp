#include "runtime/store/thread_reader.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "formats/base/checksum.h"

namespace moepack {
namespace {

// A read on its way through the reader. It moves from list to list and is never copied, so that
// memory is needed by the submission alone.
struct ReaderJob {
  RecordRead read;
  RecordCompletion completion = {};
};

}  // namespace

struct ThreadReader::Impl {
  std::vector<File> files;
  std::vector<std::thread> threads;

  std::mutex mutex;  // guards what follows
  std::condition_variable submitted;
  std::condition_variable completed;
  std::list<ReaderJob> waiting;
  std::list<ReaderJob> done;
  bool stopping = false;

  Status start_threads(std::uint32_t count, const ThreadStarter& start);
  void read_loop();
  void run(ReaderJob& job) const;
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
    std::list<ReaderJob> mine;
    mine.splice(mine.begin(), waiting, waiting.begin());
    lock.unlock();
    run(mine.front());
    lock.lock();
    done.splice(done.end(), mine);
    completed.notify_one();
  }
}

void ThreadReader::Impl::run(ReaderJob& job) const {
  const RecordRead& read = job.read;
  RecordCompletion& completion = job.completion;
  completion.tag = read.tag;
  try {
    completion.status = files[read.file].read_at(read.offset, read.out);
  } catch (const std::bad_alloc&) {  // for the sentence that says what went wrong
    completion.status = Status(StatusCode::kIo, "a read failed");
  }
  completion.finished = Clock::now();
  if (!completion.status.is_ok()) return;
  completion.bytes = read.out.size();
  if (read.wants_checksum) completion.checksum = checksum(read.out);
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
    const std::vector<std::filesystem::path>& files, std::uint32_t threads,
    const ThreadStarter& start) {
  // Its destructor ends the threads that did start when a later one does not.
  std::unique_ptr<ThreadReader> reader(new ThreadReader(std::make_unique<Impl>()));
  for (const std::filesystem::path& path : files) {
    MOE_ASSIGN_OR_RETURN(File file, File::open(path));
    reader->impl_->files.push_back(std::move(file));
  }
  MOE_RETURN_IF_ERROR(reader->impl_->start_threads(std::max(1U, threads), start));
  return reader;
}

Status ThreadReader::submit(std::span<const RecordRead> reads) {
  for (const RecordRead& read : reads) {
    if (read.file < impl_->files.size()) continue;
    return invalid_argument("there is no layer file " + std::to_string(read.file));
  }
  std::list<ReaderJob> jobs;
  for (const RecordRead& read : reads) jobs.push_back({.read = read});
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->waiting.splice(impl_->waiting.end(), jobs);
  }
  impl_->submitted.notify_all();
  return Status::ok();
}

std::size_t ThreadReader::reap(std::span<RecordCompletion> out, bool wait) noexcept {
  std::list<ReaderJob>& done = impl_->done;
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

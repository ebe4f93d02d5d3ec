#include "runtime/store/thread_reader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace moepack {

struct ThreadReader::Impl {
  std::vector<File> files;
  std::vector<std::thread> threads;

  std::mutex mutex;  // guards what follows
  std::condition_variable submitted;
  std::condition_variable completed;
  std::deque<RecordRead> reads;
  std::vector<RecordCompletion> completions;
  bool stopping = false;

  Status start_threads(std::uint32_t count, const ThreadStarter& start);
  void read_loop();
  RecordCompletion run(const RecordRead& read) const;
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
    submitted.wait(lock, [this] { return stopping || !reads.empty(); });
    if (stopping) return;
    const RecordRead read = reads.front();
    reads.pop_front();
    lock.unlock();
    RecordCompletion completion = run(read);
    lock.lock();
    completions.push_back(std::move(completion));
    completed.notify_one();
  }
}

RecordCompletion ThreadReader::Impl::run(const RecordRead& read) const {
  RecordCompletion completion{.tag = read.tag};
  completion.status = files[read.file].read_at(read.offset, read.out);
  if (completion.status.is_ok()) completion.bytes = read.out.size();
  completion.finished = Clock::now();
  return completion;
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
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->reads.insert(impl_->reads.end(), reads.begin(), reads.end());
  }
  impl_->submitted.notify_all();
  return Status::ok();
}

std::vector<RecordCompletion> ThreadReader::reap(bool wait) {
  std::unique_lock lock(impl_->mutex);
  if (wait) impl_->completed.wait(lock, [this] { return !impl_->completions.empty(); });
  return std::exchange(impl_->completions, {});
}

}  // namespace moepack
